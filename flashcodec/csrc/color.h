// Decoded pictures to RGB.
#pragma once

#include <cstdint>
#include <vector>

#include "ffmpeg.h"

namespace flashcodec {

// 8-bit RGB, rows `stride` bytes apart.
struct RgbView {
  const uint8_t* data;
  size_t stride;
  int width;
  int height;
};

// Converts by libswscale with the picture's own matrix (BT.601 if it names none) and range, then turns the
// picture upright. The result lives until the next call.
class ColorConverter {
 public:
  RgbView to_rgb(const AVFrame& frame, int quarter_turns);

 private:
  struct Format {
    int width, height, pixels;
    AVColorSpace matrix;
    bool full_range;
    bool operator==(const Format&) const = default;
  };

  void configure(const Format& format);
  RgbView turn(const RgbView& rgb, int quarter_turns);

  Format format_{};
  SwsPtr scaler_;
  std::vector<uint8_t> upright_;
  struct FreeAligned {
    void operator()(uint8_t* p) const { av_free(p); }
  };
  std::unique_ptr<uint8_t, FreeAligned> rgb_;
  size_t rgb_bytes_ = 0;
};

}  // namespace flashcodec
