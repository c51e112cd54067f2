// Antialiased bicubic resize of 8-bit RGB, bit for bit that of torch.nn.functional.interpolate(uint8,
// mode="bicubic", antialias=True) on CPU, which follows Pillow's ImagingResample: horizontal pass, 8-bit
// intermediate, vertical pass, 16-bit fixed-point weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "color.h"

namespace flashcodec {

// The weights of one axis: output i is the sum of `taps` inputs from first[i] on.
struct Filter {
  int in = 0;
  int out = 0;
  int taps = 0;
  int shift = 0;
  std::vector<int32_t> first;
  std::vector<int16_t> weights;  // [out, taps]

  static Filter bicubic(int in, int out);
};

class Resizer {
 public:
  // Prepares rows of width x height; `row(y)` makes one, valid until the next call.
  void start(const RgbView& rgb, int width, int height);
  std::span<const uint8_t> row(int y);

 private:
  void filter_row(const uint8_t* in, uint8_t* out) const;

  RgbView rgb_{};
  Filter across_;
  Filter down_;
  std::vector<uint8_t> narrowed_;  // [rgb height, width, 3]
  std::vector<int32_t> sums_;
  std::vector<uint8_t> row_;
};

}  // namespace flashcodec
