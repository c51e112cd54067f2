#include "layout.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace flashcodec {

void Layout::check() const {
  if (kind == LayoutKind::kRaw) return;
  if (height <= 0 || width <= 0) throw std::invalid_argument("height and width must be positive");
  if (kind != LayoutKind::kPatches) return;
  if (patch_size <= 0 || temporal_patch_size <= 0 || merge_size <= 0) {
    throw std::invalid_argument("patch_size, temporal_patch_size and merge_size must be positive");
  }
  const int block = patch_size * merge_size;
  if (height % block != 0 || width % block != 0) {
    throw std::invalid_argument("height " + std::to_string(height) + " and width " + std::to_string(width) +
                                " must be multiples of patch_size * merge_size = " + std::to_string(block));
  }
}

void Layout::write_row(std::span<const uint8_t> rgb, int y, int slot, uint8_t* group) const {
  const size_t row = size_t{3} * width;
  switch (kind) {
    case LayoutKind::kPatches:
      write_patch_row(rgb.data(), y, slot, group);
      break;
    case LayoutKind::kChw:
      for (int c = 0; c < 3; ++c) {
        uint8_t* out = group + (static_cast<size_t>(c) * height + y) * width;
        for (int x = 0; x < width; ++x) out[x] = rgb[3 * static_cast<size_t>(x) + c];
      }
      break;
    case LayoutKind::kHwc:
      std::memcpy(group + row * y, rgb.data(), row);
      break;
    case LayoutKind::kRaw:
      break;
  }
}

void Layout::write_patch_row(const uint8_t* rgb, int y, int slot, uint8_t* group) const {
  const int grid_width = width / patch_size;
  const int patch_y = y / patch_size;
  const size_t plane = static_cast<size_t>(patch_size) * patch_size;
  const size_t channel = plane * temporal_patch_size;
  const size_t inside = plane * slot + static_cast<size_t>(y % patch_size) * patch_size;
  const size_t block_row = static_cast<size_t>(patch_y / merge_size) * grid_width * merge_size;
  for (int patch_x = 0; patch_x < grid_width; ++patch_x) {
    const size_t block = static_cast<size_t>(patch_x / merge_size) * merge_size * merge_size;
    const size_t within = static_cast<size_t>(patch_y % merge_size) * merge_size + patch_x % merge_size;
    uint8_t* out = group + (block_row + block + within) * row_bytes() + inside;
    for (int x = 0; x < patch_size; ++x, rgb += 3) {
      out[x] = rgb[0];
      out[channel + x] = rgb[1];
      out[2 * channel + x] = rgb[2];
    }
  }
}

}  // namespace flashcodec
