// How NVDEC lays out the pictures that it hands over.
#pragma once

#include "pixels/picture.h"

namespace flashcodec {

// By the chroma format, in NVIDIA's numbers (1: 4:2:0, 2: 4:2:2, 3: 4:4:4), and the bits of a sample.
struct SurfaceFormat {
  int chroma;
  int bit_depth;

  // Return NVIDIA's number of the layout that keeps all bits.
  int number() const;
  // Return FFmpeg's number of the same layout; -1 if it knows none.
  int pixels() const;
  // Return a picture of such samples at a device's address, its planes one below the other.
  Picture picture(const PictureFormat& format, const uint8_t* data, int pitch, int width, int height) const;
};

}  // namespace flashcodec
