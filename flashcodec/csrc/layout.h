// In what form decoded frames are handed out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace flashcodec {

enum class LayoutKind { kPatches, kChw, kHwc, kRaw };

// Frames go out in groups of `temporal_patch_size` (1 but for patches). kRaw is the decoder's own planes.
struct Layout {
  LayoutKind kind = LayoutKind::kHwc;
  int height = 0;
  int width = 0;
  int patch_size = 1;
  int temporal_patch_size = 1;
  int merge_size = 1;

  // Throws std::invalid_argument if the sizes do not fit each other.
  void check() const;

  int group_frames() const { return kind == LayoutKind::kPatches ? temporal_patch_size : 1; }
  size_t group_bytes() const { return size_t{3} * height * width * group_frames(); }
  size_t row_bytes() const { return size_t{3} * temporal_patch_size * patch_size * patch_size; }
  size_t rows() const { return static_cast<size_t>(height / patch_size) * (width / patch_size); }

  // Puts row `y` of an RGB picture into its group, as the group's frame number `slot`. Patches are in the order
  // of Qwen2-VL's processor: merge blocks row by row, in each its merge_size x merge_size patches, a patch being
  // [channel, frame, y, x].
  void write_row(std::span<const uint8_t> rgb, int y, int slot, uint8_t* group) const;

 private:
  void write_patch_row(const uint8_t* rgb, int y, int slot, uint8_t* group) const;
};

}  // namespace flashcodec
