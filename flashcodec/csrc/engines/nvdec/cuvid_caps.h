// What libnvcuvid tells of its decoders, as its ABI has it: no header of NVIDIA's is needed to build.
#pragma once

#include <array>
#include <cstdint>

namespace flashcodec {

// CUVIDDECODECAPS (NVIDIA Video Codec SDK, cuviddec.h).
struct CuvidCaps {
  int codec;
  int chroma;
  unsigned bit_depth_minus_8;
  std::array<unsigned, 3> reserved1;
  uint8_t supported;
  uint8_t engines;
  uint16_t output_formats;
  unsigned max_width;
  unsigned max_height;
  unsigned max_macroblocks;
  uint16_t min_width;
  uint16_t min_height;
  uint8_t histogram_supported;
  uint8_t counter_bit_depth;
  uint16_t max_histogram_bins;
  std::array<unsigned, 10> reserved3;
};

}  // namespace flashcodec
