// Where in a group's bytes each pixel of a picture goes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pixels/device_function.h"

namespace flashcodec {

enum class LayoutKind { kPatches, kChw, kHwc, kTiles, kRaw, kHwc16 };

// The byte of a pixel's red; green and blue follow `channel` bytes apart.
struct PixelPlace {
  size_t red;
  size_t channel;
};

// A picture in a group whose bytes for it begin at `offset`. Patches are in the order of Qwen2-VL's processor: merge
// blocks row by row, in each its merge_size x merge_size patches, a patch being [channel, frame, y, x].
struct CanvasShape {
  LayoutKind kind;
  int height;
  int width;
  int tile_size;
  int patch_size;
  int merge_size;
  int group_frames;
  size_t offset;

  // The place of a pixel of frame number `slot`.
  DEVICE_FN PixelPlace place(int y, int x, int slot) const {
    switch (kind) {
      case LayoutKind::kHwc:
        return {offset + (size_t{1} * y * width + x) * 3, 1};
      case LayoutKind::kTiles:
        return in_tile(y, x);
      case LayoutKind::kPatches:
        return in_patch(y, x, slot);
      default:
        return {offset + size_t{1} * y * width + x, size_t{1} * height * width};
    }
  }

 private:
  DEVICE_FN PixelPlace in_tile(int y, int x) const {
    const size_t plane = size_t{1} * tile_size * tile_size;
    const size_t tile = size_t{1} * (y / tile_size) * (width / tile_size) + x / tile_size;
    return {offset + 3 * plane * tile + size_t{1} * (y % tile_size) * tile_size + x % tile_size, plane};
  }

  DEVICE_FN PixelPlace in_patch(int y, int x, int slot) const {
    const int patch_y = y / patch_size;
    const int patch_x = x / patch_size;
    const size_t plane = size_t{1} * patch_size * patch_size;
    const size_t channel = plane * group_frames;
    const size_t block_row = size_t{1} * (patch_y / merge_size) * (width / patch_size) * merge_size;
    const size_t block = size_t{1} * (patch_x / merge_size) * merge_size * merge_size;
    const size_t within = size_t{1} * (patch_y % merge_size) * merge_size + patch_x % merge_size;
    const size_t patch = offset + (block_row + block + within) * 3 * channel;
    return {patch + plane * slot + size_t{1} * (y % patch_size) * patch_size + x % patch_size, channel};
  }
};

}  // namespace flashcodec
