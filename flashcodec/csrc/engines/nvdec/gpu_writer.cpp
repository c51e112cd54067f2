#include "engines/nvdec/gpu_writer.h"

#include "pixels/ffmpeg_picture.h"

namespace flashcodec {

size_t GpuWriter::group_bytes(const Picture& /*picture*/, const Layout& layout) const {
  if (layout.kind == LayoutKind::kRaw) throw EngineError("the decoder's own planes are for cores to write");
  return layout.group_bytes();
}

void GpuWriter::write(const Picture& picture, Orientation orientation, const Layout& layout,
                      std::span<const Place> places) {
  const std::optional<Surface> surface = surface_of(picture);
  if (!surface) throw EngineError("NVDEC gave pictures of a format that is not known");
  const PictureFormat format = planar_format(picture.format);
  if (!writer_.fits(format, picture.height, picture.width)) throw EngineError("a GPU does not write such pictures");
  writer_.write(*surface, format, orientation, layout, places);
  points_.fence();
}

std::shared_ptr<uint8_t[]> UploadingWriter::finish(std::shared_ptr<uint8_t[]> group, size_t bytes, uint8_t* out) {
  if (group == nullptr) return nullptr;
  std::shared_ptr<uint8_t[]> copy = out == nullptr ? gpu_->take(bytes) : nullptr;
  const auto to = reinterpret_cast<native::cuda::Address>(out == nullptr ? copy.get() : out);
  const auto now = gpu_->current();
  const native::cuda::Driver& driver = gpu_->driver();
  driver.call(driver.copy_to_device, to, group.get(), bytes);
  driver.call(gpu_->functions().stream_synchronize, nullptr);  // bytes that are not page-locked may be on their way
  return copy;
}

}  // namespace flashcodec
