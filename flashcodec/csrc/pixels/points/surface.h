// Decoded pictures as a GPU's decoder and FFmpeg's decoders lay them out, sample by sample.
#pragma once

#include <cstdint>

#include "pixels/device_function.h"

namespace flashcodec {

// The samples of one component: rows `stride` bytes apart, samples `step` bytes apart (NV12's chroma: 2).
struct Component {
  const uint8_t* data;
  int64_t stride;
  int step;
};

// Luma and two chroma components, in planes of their own or interleaved, of 8 bits in bytes or of more in 16-bit words,
// whose lowest `empty_bits` say nothing (P010: 6).
struct Surface {
  Component luma;
  Component u;
  Component v;
  int width;
  int height;
  int chroma_shift_x;
  int chroma_shift_y;
  int bit_depth;
  int empty_bits;

  DEVICE_FN int sample(const Component& component, int y, int x) const {
    const uint8_t* at = component.data + component.stride * y + int64_t{component.step} * x;
    if (bit_depth == 8) return *at;
    return *reinterpret_cast<const uint16_t*>(at) >> empty_bits;
  }
};

}  // namespace flashcodec
