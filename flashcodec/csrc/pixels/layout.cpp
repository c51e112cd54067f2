#include "pixels/layout.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace flashcodec {

namespace {

// Beyond this a resized frame is a mistake.
constexpr int kLargestSide = 1 << 16;

void check_multiple(int height, int width, int unit, const char* name) {
  if (height % unit == 0 && width % unit == 0) return;
  throw std::invalid_argument("height " + std::to_string(height) + " and width " + std::to_string(width) +
                              " must be multiples of " + name + " = " + std::to_string(unit));
}

}  // namespace

void Layout::check() const {
  if (kind == LayoutKind::kRaw) return;
  if (height <= 0 || width <= 0) throw std::invalid_argument("height and width must be positive");
  if (height > kLargestSide || width > kLargestSide || fit.height > kLargestSide || fit.width > kLargestSide) {
    throw std::invalid_argument("a side may have " + std::to_string(kLargestSide) + " pixels at most");
  }
  if (fit.height < 0 || fit.width < 0 || (fit.height == 0) != (fit.width == 0)) {
    throw std::invalid_argument("the frame must be resized to a positive height and width");
  }
  if (kind == LayoutKind::kTiles) {
    if (tile_size <= 0) throw std::invalid_argument("the tile size must be positive");
    check_multiple(height, width, tile_size, "the tile size");
  }
  if (kind != LayoutKind::kPatches) return;
  if (patch_size <= 0 || temporal_patch_size <= 0 || merge_size <= 0) {
    throw std::invalid_argument("patch_size, temporal_patch_size and merge_size must be positive");
  }
  check_multiple(height, width, patch_size * merge_size, "patch_size * merge_size");
}

size_t Layout::group_bytes() const {
  const size_t picture = size_t{3} * height * width * group_frames();
  return thumbnail == Thumbnail::kNone ? picture : picture + size_t{3} * tile_size * tile_size;
}

std::vector<Canvas> Layout::canvases() const {
  const size_t tile = size_t{3} * tile_size * tile_size;
  Fit main = fit;
  if (main.height == 0) {
    main.height = height;
    main.width = width;
  }
  std::vector<Canvas> all{{*this, height, width, main, thumbnail == Thumbnail::kFirst ? tile : 0}};
  if (thumbnail != Thumbnail::kNone) {
    const size_t offset = thumbnail == Thumbnail::kFirst ? 0 : size_t{3} * height * width;
    all.emplace_back(*this, tile_size, tile_size, Fit{.height = tile_size, .width = tile_size}, offset);
  }
  return all;
}

Planes Canvas::planes(int y, uint8_t* group) const {
  // Tiles that lie below each other are planes one after the other.
  const int rows = layout_.kind == LayoutKind::kTiles ? layout_.tile_size : height_;
  const size_t plane = static_cast<size_t>(rows) * width_;
  uint8_t* row = group + offset_ + 3 * plane * (y / rows) + static_cast<size_t>(y % rows) * width_;
  return {row, row + plane, row + 2 * plane};
}

void Canvas::write_row(const Kernels& kernels, const Planes& row, int y, int slot, uint8_t* group) const {
  switch (layout_.kind) {
    case LayoutKind::kPatches:
      write_patch_row(row, y, slot, group);
      break;
    case LayoutKind::kTiles:
      write_tile_row(row, y, group);
      break;
    case LayoutKind::kChw: {
      const Planes out = planes(y, group);
      std::memcpy(out.red, row.red, width_);
      std::memcpy(out.green, row.green, width_);
      std::memcpy(out.blue, row.blue, width_);
      break;
    }
    case LayoutKind::kHwc:
      kernels.join(ConstPlanes(row), width_, group + size_t{3} * width_ * y);
      break;
    case LayoutKind::kRaw:
      break;
  }
}

void Canvas::write_tile_row(const Planes& row, int y, uint8_t* group) const {
  const int size = layout_.tile_size;
  const size_t plane = static_cast<size_t>(size) * size;
  const int columns = width_ / size;
  for (int column = 0; column < columns; ++column) {
    const size_t tile = static_cast<size_t>(y / size) * columns + column;
    uint8_t* out = group + offset_ + 3 * plane * tile + static_cast<size_t>(y % size) * size;
    const size_t x = static_cast<size_t>(column) * size;
    std::memcpy(out, row.red + x, size);
    std::memcpy(out + plane, row.green + x, size);
    std::memcpy(out + 2 * plane, row.blue + x, size);
  }
}

void Canvas::write_patch_row(const Planes& row, int y, int slot, uint8_t* group) const {
  const int size = layout_.patch_size;
  const int merge = layout_.merge_size;
  const int patch_y = y / size;
  const size_t plane = static_cast<size_t>(size) * size;
  const size_t channel = plane * layout_.temporal_patch_size;
  const size_t block_row = static_cast<size_t>(patch_y / merge) * (width_ / size) * merge;
  uint8_t* const line = group + plane * slot + static_cast<size_t>(y % size) * size;
  for (int patch_x = 0; patch_x < width_ / size; ++patch_x) {
    const size_t block = static_cast<size_t>(patch_x / merge) * merge * merge;
    const size_t within = static_cast<size_t>(patch_y % merge) * merge + patch_x % merge;
    uint8_t* out = line + (block_row + block + within) * 3 * channel;
    const size_t x = static_cast<size_t>(patch_x) * size;
    std::memcpy(out, row.red + x, size);
    std::memcpy(out + channel, row.green + x, size);
    std::memcpy(out + 2 * channel, row.blue + x, size);
  }
}

}  // namespace flashcodec
