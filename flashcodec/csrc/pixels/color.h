// Decoded pictures to RGB.
#pragma once

#include <memory>
#include <vector>

#include "pixels/picture.h"
#include "pixels/pixel_source.h"
#include "pixels/rgb_scaler.h"
#include "pixels/yuv.h"

namespace flashcodec {

// Gives the bytes of libswscale with the picture's own matrix (BT.601 if it names none) and range. Transfer
// characteristics are kept as they are: PQ and HLG pictures are not mapped to the tones of SDR.
class ColorConverter : public PixelSource {
 public:
  explicit ColorConverter(const Kernels& kernels) : kernels_(kernels), rows_(kernels), ways_(kernels) {}

  // Begin with a picture, whose memory is read until the next start. Throws std::runtime_error if its format cannot be
  // converted.
  void start(const Picture& picture);

  int width() const override { return width_; }
  int height() const override { return height_; }
  void read(int y, int x, int count, Planes out) override;

 private:
  struct FreeAligned {
    void operator()(uint8_t* p) const;
  };

  void read_whole_pairs(int y, int x, int count, Planes out);
  // Convert a picture that only libswscale can, as a whole.
  void convert(const Picture& picture);

  const Kernels& kernels_;
  YuvRows rows_;
  YuvWays ways_;
  bool by_rows_ = false;  // else by libswscale
  int width_ = 0;
  int height_ = 0;
  std::vector<uint8_t> pairs_;
  RgbScaler scaler_;
  std::unique_ptr<uint8_t, FreeAligned> rgb_;
  size_t rgb_bytes_ = 0;
};

}  // namespace flashcodec
