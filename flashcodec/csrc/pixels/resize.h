// Antialiased resize of 8-bit RGB, bit for bit that of torch.nn.functional.interpolate(uint8, antialias=True) on CPU:
// horizontal pass, 8-bit intermediate, vertical pass, 16-bit fixed-point weights.
#pragma once

#include <vector>

#include "pixels/filter.h"
#include "pixels/pixel_source.h"

namespace flashcodec {

// Part of a picture.
struct Window {
  int top;
  int left;
  int height;
  int width;
};

// Reads each row of its source once and keeps only as many narrowed ones as an output row is made of.
class Resizer {
 public:
  explicit Resizer(const Kernels& kernels) : kernels_(kernels) {}

  // Prepares rows of `source` resized to width x height, of which the window is wanted.
  void start(PixelSource& source, int height, int width, Interpolation interpolation, const Window& window);
  // Row y of the window, and no byte more; y grows from call to call.
  void row(int y, Planes out);

 private:
  void read_narrowed(int y, Planes out);
  Planes kept(int y);
  void mix(int y, Planes out);

  const Kernels& kernels_;
  PixelSource* source_ = nullptr;
  Window window_{};
  Filter across_;
  Filter down_;
  // The source's columns that matter.
  int first_column_ = 0;
  int columns_ = 0;
  std::vector<uint8_t> wide_;  // one source row
  // Narrowed rows; row y is at y % capacity_.
  std::vector<uint8_t> kept_;
  int capacity_ = 0;
  size_t kept_stride_ = 0;
  int next_ = 0;
  std::vector<const uint8_t*> rows_;
};

}  // namespace flashcodec
