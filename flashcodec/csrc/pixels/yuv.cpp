#include "pixels/yuv.h"

#include <algorithm>
#include <cstring>
#include <random>

extern "C" {
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

#include "ffmpeg/decoding.h"
#include "pixels/ffmpeg_picture.h"
#include "pixels/rgb_scaler.h"

namespace flashcodec {

namespace {

// Fixed point with 16 bits of fraction, rounded to `bits` of fraction.
int16_t rounded(int64_t value, int bits) {
  const int64_t result = ((value << bits) + (1 << 15)) >> 16;
  return static_cast<int16_t>(std::clamp<int64_t>(result, -0x7fff, 0x7fff));
}

std::vector<YuvWay> possible_ways(const PictureFormat& format) {
  if (!format.plain_yuv) return {};
  if (format.chroma_shift_x == 0 && format.chroma_shift_y == 0) return {YuvWay::kFull};
  if (format.chroma_shift_x != 1 || format.chroma_shift_y > 1) return {};
  if (format.bit_depth > 8) return {YuvWay::kStepped};
  return {YuvWay::kDirect, YuvWay::kStepped};
}

// Fills `count` samples of `depth` bits with noise.
void fill_with_noise(uint8_t* row, int count, int depth, std::minstd_rand& random) {
  for (int x = 0; x < count; ++x) {
    const auto value = static_cast<uint16_t>((random() >> 8) & ((1U << depth) - 1));
    if (depth > 8) {
      std::memcpy(row + ptrdiff_t{2} * x, &value, 2);
    } else {
      row[x] = static_cast<uint8_t>(value);
    }
  }
}

// Allocates a small picture of noise, with rows as FFmpeg's decoders align them.
FramePtr trial_frame(const PictureFormat& format) {
  auto frame = owned<FramePtr>(av_frame_alloc());
  frame->format = format.pixels;
  frame->width = 64;
  frame->height = 32;
  if (av_frame_get_buffer(frame.get(), 0) < 0) throw std::bad_alloc();
  std::minstd_rand random(1);
  const int planes = av_pix_fmt_count_planes(static_cast<AVPixelFormat>(format.pixels));
  for (int plane = 0; plane < planes; ++plane) {
    const int rows = plane == 1 || plane == 2 ? frame->height >> format.chroma_shift_y : frame->height;
    for (int y = 0; y < rows; ++y) {
      uint8_t* row = frame->data[plane] + static_cast<ptrdiff_t>(frame->linesize[plane]) * y;
      fill_with_noise(row, frame->width, format.bit_depth, random);
    }
  }
  return frame;
}

bool agrees(const Kernels& kernels, const Picture& picture, YuvWay way, const std::vector<uint8_t>& expected) {
  YuvRows rows(kernels);
  rows.start(picture, way);
  std::vector<uint8_t> row(size_t{3} * picture.width);
  std::vector<uint8_t> rgb(row.size());
  for (int y = 0; y < picture.height; ++y) {
    const Planes planes{row.data(), row.data() + picture.width, row.data() + ptrdiff_t{2} * picture.width};
    rows.read(y, 0, picture.width, planes);
    kernels.join(ConstPlanes(planes), picture.width, rgb.data());
    if (!std::equal(rgb.begin(), rgb.end(), expected.begin() + static_cast<ptrdiff_t>(rgb.size()) * y)) return false;
  }
  return true;
}

}  // namespace

YuvCoefficients yuv_coefficients(const PictureFormat& format) {
  const int* table = sws_getCoefficients(format.matrix);
  const auto chroma = [&](int i) -> int64_t { return format.full_range ? table[i] * int64_t{224} / 255 : table[i]; };
  const int64_t red_v = chroma(0);
  const int64_t blue_u = chroma(1);
  const int64_t green_u = -chroma(2);
  const int64_t green_v = -chroma(3);
  const int64_t luma = format.full_range ? 65536 : 65536 * 255 / 219;
  const int64_t offset = format.full_range ? 0 : 16 << 16;
  const auto step = [&](int64_t value) { return static_cast<int32_t>((value * 65536 + 0x8000) / luma); };
  YuvCoefficients k{};
  k.luma = rounded(luma, 13);
  k.red_v = rounded(red_v, 13);
  k.green_u = rounded(green_u, 13);
  k.green_v = rounded(green_v, 13);
  k.blue_u = rounded(blue_u, 13);
  k.luma_offset = rounded(offset, 3);
  k.fine_luma_offset = rounded(offset, 9);
  k.step_red_v = step(red_v);
  k.step_green_u = step(green_u);
  k.step_green_v = step(green_v);
  k.step_blue_u = step(blue_u);
  k.first_step = format.full_range ? 384 : 326;
  k.step = static_cast<int16_t>(luma - 65536);
  k.floor = static_cast<int16_t>(384 + (offset >> 16));
  return k;
}

YuvWay find_yuv_way(const Kernels& kernels, const PictureFormat& format) {
  if (kernels.direct == nullptr) return YuvWay::kNone;
  const std::vector<YuvWay> ways = possible_ways(format);
  if (ways.empty()) return YuvWay::kNone;
  const FramePtr frame = trial_frame(format);
  Picture trial = picture_of(*frame);
  trial.format = format;
  const size_t stride = size_t{3} * trial.width;
  std::vector<uint8_t> expected(stride * trial.height);
  RgbScaler().convert(trial, {expected.data(), stride, trial.width, trial.height});
  const auto found = std::ranges::find_if(ways, [&](YuvWay way) { return agrees(kernels, trial, way, expected); });
  return found == ways.end() ? YuvWay::kNone : *found;
}

YuvWay YuvWays::of(const PictureFormat& format) {
  const auto known = std::ranges::find(known_, format, &std::pair<PictureFormat, YuvWay>::first);
  if (known != known_.end()) return known->second;
  known_.emplace_back(format, find_yuv_way(kernels_, format));
  return known_.back().second;
}

bool YuvRows::fits(const Picture& picture) {
  if (picture.format.chroma_shift_x == 0) return true;
  return picture.width % 2 == 0 && picture.height % 2 == 0 && picture.height >= 16;
}

void YuvRows::start(const Picture& picture, YuvWay way) {
  picture_ = picture;
  way_ = way;
  coefficients_ = yuv_coefficients(picture.format);
  extra_bits_ = picture.format.bit_depth - 8;
  chroma_row_shift_ = picture.format.chroma_shift_y;
}

void YuvRows::read(int y, int x, int count, Planes out) {
  const int chroma_y = y >> chroma_row_shift_;
  if (way_ == YuvWay::kDirect) {
    kernels_.direct(sample<uint8_t>(0, y, x), sample<uint8_t>(1, chroma_y, x / 2), sample<uint8_t>(2, chroma_y, x / 2),
                    count, coefficients_, out);
  } else if (way_ == YuvWay::kStepped) {
    read_stepped(y, x, count, out);
  } else if (extra_bits_ == 0) {
    kernels_.full8(sample<uint8_t>(0, y, x), sample<uint8_t>(1, y, x), sample<uint8_t>(2, y, x), count, coefficients_,
                   out);
  } else {
    kernels_.full16(sample<uint16_t>(0, y, x), sample<uint16_t>(1, y, x), sample<uint16_t>(2, y, x), extra_bits_, count,
                    coefficients_, out);
  }
}

void YuvRows::read_stepped(int y, int x, int count, Planes out) {
  if (extra_bits_ == 0) {
    const int chroma_y = y >> chroma_row_shift_;
    kernels_.stepped8(sample<uint8_t>(0, y, x), sample<uint8_t>(1, chroma_y, x / 2),
                      sample<uint8_t>(2, chroma_y, x / 2), count, coefficients_, out);
    return;
  }
  const uint8_t* u = mixed_chroma(1, y, x / 2, count / 2, chroma_[0]);
  const uint8_t* v = mixed_chroma(2, y, x / 2, count / 2, chroma_[1]);
  kernels_.stepped16(sample<uint16_t>(0, y, x), extra_bits_, u, v, count, coefficients_, out);
}

const uint8_t* YuvRows::mixed_chroma(int plane, int y, int x, int count, std::vector<uint8_t>& out) {
  const ChromaTaps taps = chroma_taps(y, chroma_row_shift_);
  const int last = (picture_.height >> chroma_row_shift_) - 1;
  std::array<const uint16_t*, 4> rows{};
  for (int i = 0; i < 4; ++i) rows[i] = sample<uint16_t>(plane, std::clamp(taps.first + i, 0, last), x);
  out.resize(std::max(out.size(), static_cast<size_t>(count)));
  kernels_.mix(rows.data(), taps.weights, extra_bits_, count, out.data());
  return out.data();
}

}  // namespace flashcodec
