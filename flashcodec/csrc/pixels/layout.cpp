#include "pixels/layout.h"

#include <algorithm>
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

Section section_of(const Fit& fit, int height, int width) {
  const Box& part = fit.part;
  if (!part.empty()) return {part.height(), part.width(), -part.top, -part.left};
  if (!fit.square) return {height, width, 0, 0};
  const int side = std::max(height, width);
  return {side, side, (side - height) / 2, (side - width) / 2};
}

void Layout::check() const {
  if (kind == LayoutKind::kRaw) return;
  if (height <= 0 || width <= 0) throw std::invalid_argument("height and width must be positive");
  if (height > kLargestSide || width > kLargestSide || fit.height > kLargestSide || fit.width > kLargestSide) {
    throw std::invalid_argument("a side may have " + std::to_string(kLargestSide) + " pixels at most");
  }
  if (fit.height < 0 || fit.width < 0 || (fit.height == 0) != (fit.width == 0)) {
    throw std::invalid_argument("the frame must be resized to a positive height and width");
  }
  const Box& part = fit.part;
  if (part.top < 0 || part.left < 0 || part.bottom < part.top || part.right < part.left) {
    throw std::invalid_argument("the part of the frame must lie within it");
  }
  if (fit.square && !part.empty()) throw std::invalid_argument("a part of the frame is not padded to a square");
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
  if (kind == LayoutKind::kHwc16) return 2 * picture;
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

Canvas::Canvas(const Layout& layout, int height, int width, const Fit& fit, size_t offset)
    : shape_{.kind = layout.kind,
             .height = height,
             .width = width,
             .tile_size = layout.tile_size,
             .patch_size = layout.patch_size,
             .merge_size = layout.merge_size,
             .group_frames = layout.group_frames(),
             .offset = offset},
      fit_(fit) {}

Box Canvas::covered() const {
  const int top = std::clamp(fit_.top, 0, shape_.height);
  const int left = std::clamp(fit_.left, 0, shape_.width);
  return {top, left, std::clamp(fit_.top + fit_.height, top, shape_.height),
          std::clamp(fit_.left + fit_.width, left, shape_.width)};
}

Planes Canvas::planes(int y, uint8_t* group) const {
  const PixelPlace first = shape_.place(y, 0, 0);
  uint8_t* row = group + first.red;
  return {row, row + first.channel, row + 2 * first.channel};
}

void Canvas::write_row(const Kernels& kernels, const Planes& row, int y, int slot, uint8_t* group) const {
  switch (shape_.kind) {
    case LayoutKind::kPatches:
      write_patch_row(row, y, slot, group);
      break;
    case LayoutKind::kTiles:
      write_tile_row(row, y, group);
      break;
    case LayoutKind::kChw: {
      const Planes out = planes(y, group);
      std::memcpy(out.red, row.red, shape_.width);
      std::memcpy(out.green, row.green, shape_.width);
      std::memcpy(out.blue, row.blue, shape_.width);
      break;
    }
    case LayoutKind::kHwc:
      kernels.join(ConstPlanes(row), shape_.width, group + shape_.place(y, 0, slot).red);
      break;
    case LayoutKind::kRaw:
    case LayoutKind::kHwc16:
      break;
  }
}

void Canvas::write_tile_row(const Planes& row, int y, uint8_t* group) const {
  const size_t size = shape_.tile_size;
  const PixelPlace first = shape_.place(y, 0, 0);
  uint8_t* out = group + first.red;
  for (size_t x = 0; x < static_cast<size_t>(shape_.width); x += size, out += 3 * first.channel) {
    std::memcpy(out, row.red + x, size);
    std::memcpy(out + first.channel, row.green + x, size);
    std::memcpy(out + 2 * first.channel, row.blue + x, size);
  }
}

void Canvas::write_patch_row(const Planes& row, int y, int slot, uint8_t* group) const {
  const size_t size = shape_.patch_size;
  const int merge = shape_.merge_size;
  const PixelPlace first = shape_.place(y, 0, slot);
  for (int patch_x = 0; patch_x < shape_.width / shape_.patch_size; ++patch_x) {
    const size_t before = static_cast<size_t>(patch_x / merge) * merge * merge + patch_x % merge;
    uint8_t* out = group + first.red + before * 3 * first.channel;
    const size_t x = patch_x * size;
    std::memcpy(out, row.red + x, size);
    std::memcpy(out + first.channel, row.green + x, size);
    std::memcpy(out + 2 * first.channel, row.blue + x, size);
  }
}

}  // namespace flashcodec
