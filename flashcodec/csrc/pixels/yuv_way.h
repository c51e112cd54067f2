// Which of libswscale's ways from YUV to RGB, see yuv.h, and how it gets chroma for rows that share it. kRgb: the
// samples are red, green and blue already; only single pixels can be so.
#pragma once

#include <cstdint>

#include "pixels/device_function.h"

namespace flashcodec {

enum class YuvWay { kNone, kDirect, kStepped, kFull, kRgb };

struct ChromaTaps {
  int first;
  int16_t weights[4];  // NOLINT(modernize-avoid-c-arrays): std::array has no functions on a GPU
};

// libswscale's filter from chroma rows to row y of a picture that has a chroma row for each 2^shift rows: cubic with
// a = -0.6, phases of a quarter and three quarters. Before the first row one tap is dropped rather than folded.
DEVICE_FN inline ChromaTaps chroma_taps(int y, int shift) {
  if (shift == 0) return {y, {4096, 0, 0, 0}};
  const int row = y / 2;
  if (y % 2 != 0) return {row - 1, {-346, 3572, 985, -115}};
  if (y == 0) return {row - 2, {0, 0, 4432, -336}};
  if (y == 2) return {row - 2, {0, 959, 3473, -336}};
  return {row - 2, {-115, 985, 3572, -346}};
}

}  // namespace flashcodec
