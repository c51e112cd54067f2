#include "engines/nvjpeg/jpeg_decoder.h"

namespace flashcodec {

JpegDecoder::JpegDecoder(int gpu) : gpu_(std::make_shared<Gpu>(gpu)), batches_(gpu_) {
  writers_.push_back(take_writer());
}

std::shared_ptr<uint8_t[]> JpegDecoder::decode(std::span<const unsigned char> jpeg, Orientation orientation,
                                               const Layout& layout) {
  const std::optional<JpegPlanes> planes = batches_.decode(jpeg);
  if (!planes) return nullptr;
  std::shared_ptr<uint8_t[]> group = gpu_->take(layout.group_bytes());
  std::vector<Place> places;
  places.reserve(layout.group_frames());
  for (int slot = 0; slot < layout.group_frames(); ++slot) places.push_back({group.get(), slot});
  std::unique_ptr<Writer> own = take_writer();
  own->points.finish([&] { own->writer.write_rgb(planes->surface, orientation, layout, places); });
  const std::lock_guard lock(mutex_);
  writers_.push_back(std::move(own));
  return group;
}

std::unique_ptr<JpegDecoder::Writer> JpegDecoder::take_writer() {
  {
    const std::lock_guard lock(mutex_);
    if (!writers_.empty()) {
      std::unique_ptr<Writer> writer = std::move(writers_.back());
      writers_.pop_back();
      return writer;
    }
  }
  return std::make_unique<Writer>(gpu_);
}

}  // namespace flashcodec
