#include "engines/nvdec/gpu_writer.h"

#include "pixels/ffmpeg_picture.h"

namespace flashcodec {

size_t GpuWriter::group_bytes(const Picture& /*picture*/, const Layout& layout) const {
  if (layout.kind == LayoutKind::kRaw || layout.kind == LayoutKind::kHwc16) {
    throw EngineError("the decoder's own planes and 16 bits a channel are for cores to write");
  }
  return layout.group_bytes();
}

void GpuWriter::write(const Picture& picture, Orientation orientation, const Layout& layout,
                      std::span<const Place> places) {
  const std::optional<Surface> surface = surface_of(picture);
  if (!surface) throw EngineError("NVDEC gave pictures of a format that is not known");
  const PictureFormat format = planar_format(picture.format);
  if (!writer_.fits(format, picture.height, picture.width)) throw EngineError("a GPU does not write such pictures");
  points_.finish([&] { writer_.write(*surface, format, orientation, layout, places); });
}

std::shared_ptr<uint8_t[]> UploadingWriter::finish(std::shared_ptr<uint8_t[]> group, size_t bytes, uint8_t* out) {
  if (group == nullptr) return nullptr;
  std::shared_ptr<uint8_t[]> copy = out == nullptr ? stream_.gpu()->take(bytes) : nullptr;
  stream_.copy(out == nullptr ? copy.get() : out, std::as_bytes(std::span(group.get(), bytes)));
  stream_.fence();
  return copy;
}

}  // namespace flashcodec
