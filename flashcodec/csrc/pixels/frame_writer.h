// Decoded pictures into the rows of the output: colour, upright, size and layout in one pass.
#pragma once

#include <memory>
#include <span>

#include "pixels/layout.h"
#include "pixels/orientation.h"
#include "pixels/picture.h"
#include "pixels/pixel_source.h"

namespace flashcodec {

// Keeps its scratch memory, a few rows, between frames; one for each thread.
class FrameWriter {
 public:
  explicit FrameWriter(const Kernels& kernels = best_kernels());
  ~FrameWriter();
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;
  FrameWriter(FrameWriter&&) noexcept;
  FrameWriter& operator=(FrameWriter&&) noexcept;

  // Write a picture into its places in groups of a layout that has pixels of 8 bits, neither kRaw nor kHwc16.
  void write(const Picture& picture, Orientation orientation, const Layout& layout, std::span<const Place> places);
  void write(const RgbView& rgb, const Layout& layout, std::span<const Place> places);

 private:
  class Pipeline;
  std::unique_ptr<Pipeline> pipeline_;
};

// Return the size of the decoder's own planes, rows without padding, in bytes. Throws std::runtime_error if the pixel
// format has none.
size_t raw_bytes(const Picture& picture);
// Copy these planes to `out`, which has room for raw_bytes(picture).
void write_raw(const Picture& picture, uint8_t* out);

}  // namespace flashcodec
