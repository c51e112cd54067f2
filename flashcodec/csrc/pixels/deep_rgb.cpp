#include "pixels/deep_rgb.h"

#include <algorithm>
#include <cstring>

#include "pixels/kernels.h"

namespace flashcodec {

namespace {

constexpr size_t kPixel = 6;  // bytes

// Where the pixel that comes to lie at (y, x) of the upright height x width comes from.
size_t source_of(int y, int x, Orientation orientation, int height, int width) {
  const int turns = orientation.quarter_turns;
  if (orientation.swaps_sides()) {
    const int row = turns == 1 ? width - 1 - x : x;
    const int column = orientation.mirrored == (turns == 1) ? height - 1 - y : y;
    return size_t{1} * row * height + column;
  }
  const int row = turns == 2 ? height - 1 - y : y;
  const int column = orientation.mirrored == (turns == 2) ? x : width - 1 - x;
  return size_t{1} * row * width + column;
}

}  // namespace

void DeepRgb::write(const Picture& picture, Orientation orientation, int height, int width, uint8_t* out) {
  const bool upright = orientation.quarter_turns == 0 && !orientation.mirrored;
  const int rows = orientation.swaps_sides() ? width : height;
  const int columns = orientation.swaps_sides() ? height : width;
  // Rows of their own, because libswscale's SIMD may write beyond the end of a row that is no multiple of 32 pixels.
  const size_t stride = size_t{32} * kPixel * ((columns + 31) / 32);
  rgb_.resize(std::max(rgb_.size(), stride * rows + kRowPadding));
  scaler_.convert(picture, {rgb_.data(), stride, columns, rows, RgbDepth::k16});
  for (int y = 0; y < height; ++y) {
    uint8_t* line = out + kPixel * y * width;
    if (upright) {
      std::memcpy(line, rgb_.data() + stride * y, kPixel * width);
      continue;
    }
    for (int x = 0; x < width; ++x) {
      const size_t source = source_of(y, x, orientation, height, width);
      std::memcpy(line + kPixel * x, rgb_.data() + source / columns * stride + source % columns * kPixel, kPixel);
    }
  }
}

}  // namespace flashcodec
