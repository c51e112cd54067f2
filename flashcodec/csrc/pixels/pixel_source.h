// Pictures as rows of red, green and blue that are made when they are read.
#pragma once

#include "pixels/kernels.h"

namespace flashcodec {

class PixelSource {
 public:
  PixelSource() = default;
  virtual ~PixelSource() = default;
  PixelSource(const PixelSource&) = delete;
  PixelSource& operator=(const PixelSource&) = delete;

  virtual int width() const = 0;
  virtual int height() const = 0;
  // Pixels [x, x + count) of row y, and no byte more; fastest where x and count are even.
  virtual void read(int y, int x, int count, Planes out) = 0;
};

// 8-bit RGB, rows `stride` bytes apart.
struct RgbView {
  const uint8_t* data;
  size_t stride;
  int width;
  int height;
};

class RgbPixels : public PixelSource {
 public:
  RgbPixels(const Kernels& kernels, const RgbView& rgb) : kernels_(kernels), rgb_(rgb) {}

  int width() const override { return rgb_.width; }
  int height() const override { return rgb_.height; }
  void read(int y, int x, int count, Planes out) override {
    kernels_.split(rgb_.data + rgb_.stride * y + size_t{3} * x, count, out);
  }

 private:
  const Kernels& kernels_;
  RgbView rgb_;
};

}  // namespace flashcodec
