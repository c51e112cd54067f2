#include "color.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <stdexcept>

namespace flashcodec {

namespace {

// libswscale's fast paths write whole vectors, so rows are padded.
constexpr size_t kRowAlignment = 64;

size_t stride_of(int width) { return (size_t{3} * width + 2 * kRowAlignment - 1) / kRowAlignment * kRowAlignment; }

bool is_full_range(const AVFrame& frame) {
  if (frame.color_range != AVCOL_RANGE_UNSPECIFIED) return frame.color_range == AVCOL_RANGE_JPEG;
  const auto format = static_cast<AVPixelFormat>(frame.format);
  return format == AV_PIX_FMT_YUVJ420P || format == AV_PIX_FMT_YUVJ422P || format == AV_PIX_FMT_YUVJ444P ||
         format == AV_PIX_FMT_YUVJ440P || format == AV_PIX_FMT_YUVJ411P;
}

}  // namespace

void ColorConverter::start(const AVFrame& frame) {
  const YuvFormat format{frame.format, frame.colorspace, is_full_range(frame)};
  const YuvWay way = way_of(format);
  by_rows_ = way != YuvWay::kNone && YuvRows::fits(frame);
  width_ = frame.width;
  height_ = frame.height;
  if (by_rows_) {
    rows_.start(frame, way, format);
  } else {
    convert(frame, format);
  }
}

YuvWay ColorConverter::way_of(const YuvFormat& format) {
  const auto known = std::ranges::find(ways_, format, &std::pair<YuvFormat, YuvWay>::first);
  if (known != ways_.end()) return known->second;
  ways_.emplace_back(format, find_yuv_way(kernels_, format));
  return ways_.back().second;
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

void ColorConverter::convert(const AVFrame& frame, const YuvFormat& format) {
  if (scaler_.context == nullptr || scaler_.format != format || scaler_.width != width_ || scaler_.height != height_) {
    scaler_ = {format, width_, height_, rgb_scaler(format, width_, height_)};
  }
  const size_t stride = stride_of(width_);
  const size_t bytes = stride * height_ + kRowAlignment;
  if (bytes > rgb_bytes_) {
    rgb_.reset(static_cast<uint8_t*>(av_malloc(bytes)));
    rgb_bytes_ = rgb_ != nullptr ? bytes : 0;
    if (rgb_ == nullptr) throw std::bad_alloc();
  }
  const std::array<uint8_t*, 4> planes{rgb_.get()};
  const std::array<int, 4> strides{static_cast<int>(stride)};
  const int rows =
      sws_scale(scaler_.context.get(), frame.data, frame.linesize, 0, height_, planes.data(), strides.data());
  if (rows != height_) throw std::runtime_error("libswscale failed");
}

}  // namespace flashcodec
