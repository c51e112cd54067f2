// Decoded pictures as plain memory, whoever decoded them.
#pragma once

#include <array>
#include <cstdint>

namespace flashcodec {

// What the samples of a picture mean. `pixels` and `matrix` are numbers of FFmpeg's AVPixelFormat and AVColorSpace (the
// latter those of ITU-T H.273); the other fields follow from the pixel format, or say that it is none we know.
struct PictureFormat {
  int pixels = -1;
  int matrix = 2;  // unspecified
  bool full_range = false;
  bool plain_yuv = false;  // planes Y, U and V of 8 to 14 bits a sample in this machine's byte order
  int bit_depth = 0;
  int chroma_shift_x = 0;  // log2 of the luma samples, along a row, that share a chroma sample
  int chroma_shift_y = 0;
  bool operator==(const PictureFormat&) const = default;
};

// A picture in somebody else's memory: planes of rows that are `strides` bytes apart.
struct Picture {
  PictureFormat format;
  int width = 0;
  int height = 0;
  std::array<const uint8_t*, 4> planes{};
  std::array<int, 4> strides{};
};

}  // namespace flashcodec
