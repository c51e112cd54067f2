// Decoded pictures into their places in groups by functions of single pixels; byte for byte what FrameWriter writes.
#pragma once

#include <array>
#include <span>

#include "pixels/filter.h"
#include "pixels/layout.h"
#include "pixels/points/point_device.h"
#include "pixels/yuv.h"

namespace flashcodec {

class PointWriter {
 public:
  // The device outlives it.
  explicit PointWriter(PointDevice& device) : device_(device) {}

  // Return whether it can write pictures of this format and size: 8 bits or more in 4:2:0, 4:2:2 or 4:4:4, with an even
  // size where chroma is shared. Others are for FrameWriter.
  bool fits(const PictureFormat& format, int height, int width);

  // Write a picture that fits, whose format is that of the same samples in planes. Done when the device has run it.
  void write(const Surface& surface, const PictureFormat& format, Orientation orientation, const Layout& layout,
             std::span<const Place> places);
  // Write a picture of any size whose luma, u and v are its red, green and blue, 8 bits each.
  void write_rgb(const Surface& surface, Orientation orientation, const Layout& layout, std::span<const Place> places);

 private:
  // A filter, and where the device reads it.
  class Table {
   public:
    FilterView get(PointDevice& device, Interpolation interpolation, int in, int out);
    const Filter& filter() const { return filter_; }

   private:
    Filter filter_;
    std::shared_ptr<const std::byte> first_;
    std::shared_ptr<const std::byte> weights_;
  };
  struct Tables {
    Table across;
    Table down;
  };

  void write(const UprightView& picture, const Layout& layout, std::span<const Place> places);
  void draw(const UprightView& picture, const Canvas& canvas, Interpolation interpolation, Tables& tables,
            std::span<const Place> places);

  PointDevice& device_;
  YuvWays ways_{best_kernels()};
  std::array<Tables, 2> tables_;  // of the picture and the thumbnail
};

}  // namespace flashcodec
