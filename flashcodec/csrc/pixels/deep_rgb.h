// Decoded pictures as RGB of 16 bits a channel, which keep what sources of more than 8 bits have.
#pragma once

#include <vector>

#include "pixels/orientation.h"
#include "pixels/rgb_scaler.h"

namespace flashcodec {

class DeepRgb {
 public:
  // Write a picture, upright and resized to height x width by libswscale, as [y, x, channel].
  void write(const Picture& picture, Orientation orientation, int height, int width, uint8_t* out);

 private:
  RgbScaler scaler_;
  std::vector<uint8_t> rgb_;  // before it is turned
};

}  // namespace flashcodec
