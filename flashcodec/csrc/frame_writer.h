// Decoded pictures into the rows of the output: colour, upright, size and layout in one pass.
#pragma once

#include <memory>
#include <span>

#include "ffmpeg.h"
#include "layout.h"
#include "orientation.h"
#include "pixel_source.h"

namespace flashcodec {

// A frame's place: number `slot` in the group whose bytes are at `group`.
struct Place {
  uint8_t* group;
  int slot;
};

// Keeps its scratch memory, a few rows, between frames; one for each thread.
class FrameWriter {
 public:
  explicit FrameWriter(const Kernels& kernels = best_kernels());
  ~FrameWriter();
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;
  FrameWriter(FrameWriter&&) noexcept;
  FrameWriter& operator=(FrameWriter&&) noexcept;

  void write(const AVFrame& frame, Orientation orientation, const Layout& layout, std::span<const Place> places);
  void write(const RgbView& rgb, const Layout& layout, std::span<const Place> places);

 private:
  class Pipeline;
  std::unique_ptr<Pipeline> pipeline_;
};

// The bytes of the decoder's own planes, rows without padding.
size_t raw_bytes(const AVFrame& frame);
void write_raw(const AVFrame& frame, std::span<uint8_t> out);

}  // namespace flashcodec
