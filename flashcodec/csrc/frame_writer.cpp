#include "frame_writer.h"

#include <stdexcept>

namespace flashcodec {

void FrameWriter::write(const AVFrame& frame, int quarter_turns, const Layout& layout, std::span<const Place> places) {
  write(converter_.to_rgb(frame, quarter_turns), layout, places);
}

void FrameWriter::write(const RgbView& rgb, const Layout& layout, std::span<const Place> places) {
  resizer_.start(rgb, layout.width, layout.height);
  for (int y = 0; y < layout.height; ++y) {
    const std::span<const uint8_t> row = resizer_.row(y);
    for (const Place& place : places) layout.write_row(row, y, place.slot, place.group);
  }
}

size_t raw_bytes(const AVFrame& frame) {
  const int bytes = av_image_get_buffer_size(static_cast<AVPixelFormat>(frame.format), frame.width, frame.height, 1);
  if (bytes < 0) throw std::runtime_error("the decoder's pixel format has no plain layout");
  return static_cast<size_t>(bytes);
}

void write_raw(const AVFrame& frame, std::span<uint8_t> out) {
  av_image_copy_to_buffer(out.data(), static_cast<int>(out.size()), frame.data, frame.linesize,
                          static_cast<AVPixelFormat>(frame.format), frame.width, frame.height, 1);
}

}  // namespace flashcodec
