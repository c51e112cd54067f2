// In what form decoded frames are handed out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pixels/canvas_shape.h"
#include "pixels/filter.h"
#include "pixels/kernels.h"

namespace flashcodec {

enum class Thumbnail { kNone, kFirst, kLast };

// Rows [top, bottom) and columns [left, right) of a picture.
struct Box {
  int top = 0;
  int left = 0;
  int bottom = 0;
  int right = 0;

  int height() const { return bottom - top; }
  int width() const { return right - left; }
  bool empty() const { return top == bottom || left == right; }
};

// How a frame is fitted into a picture.
struct Fit {
  // The size that the frame is resized to; 0: the picture's.
  int height = 0;
  int width = 0;
  // Where it then lies in the picture: what is outside is cropped, what it leaves free is of the colour.
  int top = 0;
  int left = 0;
  std::array<uint8_t, 3> color{};  // red, green, blue
  // First of all, put the frame in the middle of a square of the colour.
  bool square = false;
  // First of all, take this part of the upright frame; empty: all of it.
  Box part{};
};

// What is resized: height x width pixels, in which the upright frame lies `top` rows down and `left` columns across.
struct Section {
  int height;
  int width;
  int top;
  int left;
};

// Return the section that is fitted of an upright frame of height x width.
Section section_of(const Fit& fit, int height, int width);

// Frames go out in groups of `temporal_patch_size` (1 but for patches). kRaw is the decoder's own planes. kHwc16 is RGB
// of 16 bits a channel, resized by libswscale and not fitted otherwise. kTiles cuts
// the picture into tiles of tile_size x tile_size, [tile, channel, y, x] row by row, and may add one that shows the
// whole frame.
struct Layout {
  LayoutKind kind = LayoutKind::kHwc;
  int height = 0;
  int width = 0;
  int patch_size = 1;
  int temporal_patch_size = 1;
  int merge_size = 1;
  Interpolation interpolation = Interpolation::kBicubic;
  Fit fit{};
  int tile_size = 1;
  Thumbnail thumbnail = Thumbnail::kNone;

  // Throws std::invalid_argument if the sizes do not fit each other.
  void check() const;

  int group_frames() const { return kind == LayoutKind::kPatches ? temporal_patch_size : 1; }
  size_t group_bytes() const;

  // The picture and, if there is one, the thumbnail.
  std::vector<class Canvas> canvases() const;
};

// A frame's place: number `slot` in the group whose bytes are at `group`.
struct Place {
  uint8_t* group;
  int slot;
};

// A picture's place in a group.
class Canvas {
 public:
  Canvas(const Layout& layout, int height, int width, const Fit& fit, size_t offset);

  int height() const { return shape_.height; }
  int width() const { return shape_.width; }
  const Fit& fit() const { return fit_; }
  const CanvasShape& shape() const { return shape_; }
  // The part of the picture that the frame covers.
  Box covered() const;

  // Whether rows lie in the group as planes, and where.
  bool planar() const {
    const bool one_column = shape_.kind == LayoutKind::kTiles && shape_.width == shape_.tile_size;
    return shape_.kind == LayoutKind::kChw || one_column;
  }
  Planes planes(int y, uint8_t* group) const;

  // Puts row `y` into its group, as the group's frame number `slot`.
  void write_row(const Kernels& kernels, const Planes& row, int y, int slot, uint8_t* group) const;

 private:
  void write_tile_row(const Planes& row, int y, uint8_t* group) const;
  void write_patch_row(const Planes& row, int y, int slot, uint8_t* group) const;

  CanvasShape shape_;
  Fit fit_;
};

}  // namespace flashcodec
