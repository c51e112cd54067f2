// libswscale's arithmetic from YUV to RGB for single pixels: the three ways of yuv.h.
#pragma once

#include <cstdint>

#include "pixels/kernels.h"
#include "pixels/points/surface.h"
#include "pixels/yuv_way.h"

namespace flashcodec {

struct Rgb {
  uint8_t red;
  uint8_t green;
  uint8_t blue;
};

DEVICE_FN inline uint8_t clipped(int value) { return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value); }

DEVICE_FN inline int high_product(int a, int b) { return (a * b) >> 16; }

DEVICE_FN inline Rgb direct_point(int y, int u, int v, const YuvCoefficients& k) {
  const int cu = u * 8 - 1024;
  const int cv = v * 8 - 1024;
  const int luma = high_product(y * 8 - k.luma_offset, k.luma);
  return {clipped(luma + high_product(cv, k.red_v)),
          clipped(luma + high_product(cu, k.green_u) + high_product(cv, k.green_v)),
          clipped(luma + high_product(cu, k.blue_u))};
}

// Rounds index * (65536 + step) / 65536.
DEVICE_FN inline uint8_t at_step(int index, const YuvCoefficients& k) {
  return clipped(index - k.floor + ((index * k.step + (1 << 15)) >> 16));
}

DEVICE_FN inline Rgb stepped_point(int y, int u, int v, const YuvCoefficients& k) {
  const int red = k.first_step - (k.step_red_v >> 9) + ((v * k.step_red_v) >> 16);
  const int green = k.first_step - (k.step_green_u >> 9) - (k.step_green_v >> 9) + ((u * k.step_green_u) >> 16) +
                    ((v * k.step_green_v) >> 16);
  const int blue = k.first_step - (k.step_blue_u >> 9) + ((u * k.step_blue_u) >> 16);
  return {at_step(y + red, k), at_step(y + green, k), at_step(y + blue, k)};
}

// 30 bits, wrapping around where libswscale's do.
DEVICE_FN inline uint8_t clipped_full(uint32_t value) {
  const auto wrapped = static_cast<int32_t>(value);
  return static_cast<uint8_t>((wrapped < 0 ? 0 : wrapped > 0x3fffffff ? 0x3fffffff : wrapped) >> 22);
}

DEVICE_FN inline uint32_t wrapping_product(int a, int b) { return static_cast<uint32_t>(a) * static_cast<uint32_t>(b); }

DEVICE_FN inline Rgb full_point(int y, int u, int v, int extra_bits, const YuvCoefficients& k) {
  const int shift = 9 - extra_bits;
  const uint32_t luma = wrapping_product((y << shift) - k.fine_luma_offset, k.luma) + (1U << 21);
  const int cu = (u << shift) - (128 << 9);
  const int cv = (v << shift) - (128 << 9);
  return {clipped_full(luma + wrapping_product(cv, k.red_v)),
          clipped_full(luma + wrapping_product(cv, k.green_v) + wrapping_product(cu, k.green_u)),
          clipped_full(luma + wrapping_product(cu, k.blue_u))};
}

// A chroma sample as 8 bits, from the rows around it where it is shared by two rows.
DEVICE_FN inline int mixed_chroma(const Surface& surface, const Component& chroma, int y, int x) {
  const int extra_bits = surface.bit_depth - 8;
  const ChromaTaps taps = chroma_taps(y, surface.chroma_shift_y);
  const int last = (surface.height >> surface.chroma_shift_y) - 1;
  const int shift = 12 + extra_bits;
  int sum = 1 << (shift - 1);
  for (int i = 0; i < 4; ++i) {
    const int row = taps.first + i < 0 ? 0 : taps.first + i > last ? last : taps.first + i;
    sum += surface.sample(chroma, row, x) * taps.weights[i];
  }
  return clipped(sum >> shift);
}

DEVICE_FN inline Rgb rgb_of(const Surface& surface, YuvWay way, const YuvCoefficients& k, int y, int x) {
  const int luma = surface.sample(surface.luma, y, x);
  const int extra_bits = surface.bit_depth - 8;
  const int chroma_x = x >> surface.chroma_shift_x;
  if (way == YuvWay::kStepped && extra_bits > 0) {
    const int rounded = ((luma + (1 << (extra_bits - 1))) & 0xFFFF) >> extra_bits;
    return stepped_point(rounded, mixed_chroma(surface, surface.u, y, chroma_x),
                         mixed_chroma(surface, surface.v, y, chroma_x), k);
  }
  const int u = surface.sample(surface.u, y >> surface.chroma_shift_y, chroma_x);
  const int v = surface.sample(surface.v, y >> surface.chroma_shift_y, chroma_x);
  if (way == YuvWay::kRgb) return {static_cast<uint8_t>(luma), static_cast<uint8_t>(u), static_cast<uint8_t>(v)};
  if (way == YuvWay::kFull) return full_point(luma, u, v, extra_bits, k);
  return way == YuvWay::kDirect ? direct_point(luma, u, v, k) : stepped_point(luma, u, v, k);
}

}  // namespace flashcodec
