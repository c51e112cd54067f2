// Decoded pictures to RGB.
#pragma once

#include <utility>
#include <vector>

#include "ffmpeg.h"
#include "pixel_source.h"
#include "yuv.h"

namespace flashcodec {

// Gives the bytes of libswscale with the picture's own matrix (BT.601 if it names none) and range. Transfer
// characteristics are kept as they are: PQ and HLG pictures are not mapped to the tones of SDR.
class ColorConverter : public PixelSource {
 public:
  explicit ColorConverter(const Kernels& kernels) : kernels_(kernels), rows_(kernels) {}

  // The frame is read until the next start. Throws std::runtime_error if its format cannot be converted.
  void start(const AVFrame& frame);

  int width() const override { return width_; }
  int height() const override { return height_; }
  void read(int y, int x, int count, Planes out) override;

 private:
  struct Scaler {
    YuvFormat format;
    int width = 0;
    int height = 0;
    SwsPtr context;
  };
  struct FreeAligned {
    void operator()(uint8_t* p) const { av_free(p); }
  };

  YuvWay way_of(const YuvFormat& format);
  void read_whole_pairs(int y, int x, int count, Planes out);
  // Those pictures that only libswscale converts, as a whole.
  void convert(const AVFrame& frame, const YuvFormat& format);

  const Kernels& kernels_;
  YuvRows rows_;
  std::vector<std::pair<YuvFormat, YuvWay>> ways_;  // of the formats met so far
  bool by_rows_ = false;                            // else by libswscale
  int width_ = 0;
  int height_ = 0;
  std::vector<uint8_t> pairs_;
  Scaler scaler_;
  std::unique_ptr<uint8_t, FreeAligned> rgb_;
  size_t rgb_bytes_ = 0;
};

}  // namespace flashcodec
