// In what form decoded frames are handed out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pixels/filter.h"
#include "pixels/kernels.h"

namespace flashcodec {

enum class LayoutKind { kPatches, kChw, kHwc, kTiles, kRaw };

enum class Thumbnail { kNone, kFirst, kLast };

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
};

// Frames go out in groups of `temporal_patch_size` (1 but for patches). kRaw is the decoder's own planes. kTiles cuts
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
  Canvas(const Layout& layout, int height, int width, const Fit& fit, size_t offset)
      : layout_(layout), height_(height), width_(width), fit_(fit), offset_(offset) {}

  int height() const { return height_; }
  int width() const { return width_; }
  const Fit& fit() const { return fit_; }

  // Whether rows lie in the group as planes, and where.
  bool planar() const {
    const bool one_column = layout_.kind == LayoutKind::kTiles && width_ == layout_.tile_size;
    return layout_.kind == LayoutKind::kChw || one_column;
  }
  Planes planes(int y, uint8_t* group) const;

  // Puts row `y` into its group, as the group's frame number `slot`. Patches are in the order of Qwen2-VL's
  // processor: merge blocks row by row, in each its merge_size x merge_size patches, a patch being
  // [channel, frame, y, x].
  void write_row(const Kernels& kernels, const Planes& row, int y, int slot, uint8_t* group) const;

 private:
  void write_tile_row(const Planes& row, int y, uint8_t* group) const;
  void write_patch_row(const Planes& row, int y, int slot, uint8_t* group) const;

  const Layout& layout_;
  int height_;
  int width_;
  Fit fit_;
  size_t offset_;
};

}  // namespace flashcodec
