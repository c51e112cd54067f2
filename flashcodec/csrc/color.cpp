#include "color.h"

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

RgbView ColorConverter::to_rgb(const AVFrame& frame, int quarter_turns) {
  configure({frame.width, frame.height, frame.format, frame.colorspace, is_full_range(frame)});
  const size_t stride = stride_of(frame.width);
  const std::array<uint8_t*, 4> planes{rgb_.get()};
  const std::array<int, 4> strides{static_cast<int>(stride)};
  const int rows = sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, planes.data(), strides.data());
  if (rows != frame.height) throw std::runtime_error("libswscale failed");
  const RgbView rgb{rgb_.get(), stride, frame.width, frame.height};
  return quarter_turns == 0 ? rgb : turn(rgb, quarter_turns);
}

void ColorConverter::configure(const Format& format) {
  if (scaler_ != nullptr && format == format_) return;
  scaler_.reset(sws_getContext(format.width, format.height, static_cast<AVPixelFormat>(format.pixels), format.width,
                               format.height, AV_PIX_FMT_RGB24, 0, nullptr, nullptr, nullptr));
  if (scaler_ == nullptr) {
    const char* name = av_get_pix_fmt_name(static_cast<AVPixelFormat>(format.pixels));
    throw std::runtime_error(std::string("pixel format ") + (name != nullptr ? name : "?") + " cannot be converted");
  }
  const int* matrix = sws_getCoefficients(format.matrix);
  sws_setColorspaceDetails(scaler_.get(), matrix, format.full_range ? 1 : 0, matrix, 1, 0, 1 << 16, 1 << 16);
  const size_t bytes = stride_of(format.width) * format.height + kRowAlignment;
  if (bytes > rgb_bytes_) {
    rgb_.reset(static_cast<uint8_t*>(av_malloc(bytes)));
    if (rgb_ == nullptr) throw std::bad_alloc();
    rgb_bytes_ = bytes;
  }
  format_ = format;
}

RgbView ColorConverter::turn(const RgbView& rgb, int quarter_turns) {
  const bool swaps = quarter_turns % 2 != 0;
  const int width = swaps ? rgb.height : rgb.width;
  const int height = swaps ? rgb.width : rgb.height;
  const size_t stride = size_t{3} * width;
  upright_.resize(stride * height);
  for (int y = 0; y < rgb.height; ++y) {
    const uint8_t* in = rgb.data + rgb.stride * y;
    for (int x = 0; x < rgb.width; ++x, in += 3) {
      const int to_x = quarter_turns == 1 ? rgb.height - 1 - y : quarter_turns == 2 ? rgb.width - 1 - x : y;
      const int to_y = quarter_turns == 1 ? x : quarter_turns == 2 ? rgb.height - 1 - y : rgb.width - 1 - x;
      std::memcpy(upright_.data() + stride * to_y + size_t{3} * to_x, in, 3);
    }
  }
  return {upright_.data(), stride, width, height};
}

}  // namespace flashcodec
