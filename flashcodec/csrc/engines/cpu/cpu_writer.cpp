#include "engines/cpu/cpu_writer.h"

namespace flashcodec {

std::shared_ptr<uint8_t[]> CpuWriter::take(size_t bytes) { return std::make_unique_for_overwrite<uint8_t[]>(bytes); }

size_t CpuWriter::group_bytes(const Picture& picture, const Layout& layout) const {
  return layout.kind == LayoutKind::kRaw ? raw_bytes(picture) : layout.group_bytes();
}

void CpuWriter::write(const Picture& picture, Orientation orientation, const Layout& layout,
                      std::span<const Place> places) {
  switch (layout.kind) {
    case LayoutKind::kRaw:
      for (const Place& place : places) write_raw(picture, place.group);
      break;
    case LayoutKind::kHwc16:
      for (const Place& place : places) deep_.write(picture, orientation, layout.height, layout.width, place.group);
      break;
    default:
      frames_.write(picture, orientation, layout, places);
  }
}

}  // namespace flashcodec
