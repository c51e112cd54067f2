// Pictures turned upright, and cropped or padded to a section.
#pragma once

#include <array>
#include <vector>

#include "pixels/layout.h"
#include "pixels/orientation.h"
#include "pixels/pixel_source.h"

namespace flashcodec {

using Color = std::array<uint8_t, 3>;  // red, green, blue

class Upright : public PixelSource {
 public:
  explicit Upright(const Kernels& kernels) : kernels_(kernels) {}

  // Its pixels are those of the section that `fit` takes. The source is read until the next start.
  void start(PixelSource& source, Orientation orientation, const Fit& fit);

  int width() const override { return section_.width; }
  int height() const override { return section_.height; }
  void read(int y, int x, int count, Planes out) override;

 private:
  void read_turned(int y, int x, int count, Planes out);
  const uint8_t* strip_line(int channel, int column) const;
  void load_strip(int column);

  const Kernels& kernels_;
  PixelSource* source_ = nullptr;
  Orientation orientation_;
  Color color_{};
  int inner_width_ = 0;
  int inner_height_ = 0;
  Section section_{};
  // For quarter turns: neighbouring columns of the source as rows, from column `strip_first_` on.
  std::vector<uint8_t> strip_;
  std::vector<uint8_t> block_;
  int strip_first_ = -1;
};

void fill(Planes out, int count, Color color);

}  // namespace flashcodec
