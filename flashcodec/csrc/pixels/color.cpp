#include "pixels/color.h"

#include <algorithm>
#include <cstring>
#include <new>

extern "C" {
#include <libavutil/mem.h>
}

namespace flashcodec {

namespace {

// libswscale's fast paths write whole vectors, so rows are padded.
constexpr size_t kRowAlignment = 64;

size_t stride_of(int width) { return (size_t{3} * width + 2 * kRowAlignment - 1) / kRowAlignment * kRowAlignment; }

}  // namespace

void ColorConverter::FreeAligned::operator()(uint8_t* p) const { av_free(p); }

void ColorConverter::start(const Picture& picture) {
  const YuvWay way = ways_.of(picture.format);
  by_rows_ = way != YuvWay::kNone && YuvRows::fits(picture);
  width_ = picture.width;
  height_ = picture.height;
  if (by_rows_) {
    rows_.start(picture, way);
  } else {
    convert(picture);
  }
}

void ColorConverter::read(int y, int x, int count, Planes out) {
  if (!by_rows_) {
    kernels_.split(rgb_.get() + stride_of(width_) * y + size_t{3} * x, count, out);
  } else if (!rows_.shares_chroma() || (x % 2 == 0 && count % 2 == 0)) {
    rows_.read(y, x, count, out);
  } else {
    read_whole_pairs(y, x, count, out);
  }
}

void ColorConverter::read_whole_pairs(int y, int x, int count, Planes out) {
  const int begin = x / 2 * 2;
  const int end = (x + count + 1) / 2 * 2;
  pairs_.resize(std::max(pairs_.size(), size_t{3} * width_));
  const Planes row{pairs_.data(), pairs_.data() + width_, pairs_.data() + ptrdiff_t{2} * width_};
  rows_.read(y, begin, end - begin, row);
  std::memcpy(out.red, row.red + x - begin, count);
  std::memcpy(out.green, row.green + x - begin, count);
  std::memcpy(out.blue, row.blue + x - begin, count);
}

void ColorConverter::convert(const Picture& picture) {
  const size_t stride = stride_of(width_);
  const size_t bytes = stride * height_ + kRowAlignment;
  if (bytes > rgb_bytes_) {
    rgb_.reset(static_cast<uint8_t*>(av_malloc(bytes)));
    rgb_bytes_ = rgb_ != nullptr ? bytes : 0;
    if (rgb_ == nullptr) throw std::bad_alloc();
  }
  scaler_.convert(picture, {rgb_.get(), stride, picture.width, picture.height});
}

}  // namespace flashcodec
