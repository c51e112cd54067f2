// Decoded pictures into the rows of the output: colour, upright, size and layout in one pass.
#pragma once

#include <span>

#include "color.h"
#include "layout.h"
#include "resize.h"

namespace flashcodec {

// A frame's place: number `slot` in the group whose bytes are at `group`.
struct Place {
  uint8_t* group;
  int slot;
};

// Keeps its scratch memory between frames; one for each thread.
class FrameWriter {
 public:
  void write(const AVFrame& frame, int quarter_turns, const Layout& layout, std::span<const Place> places);
  void write(const RgbView& rgb, const Layout& layout, std::span<const Place> places);

 private:
  ColorConverter converter_;
  Resizer resizer_;
};

// The bytes of the decoder's own planes, rows without padding.
size_t raw_bytes(const AVFrame& frame);
void write_raw(const AVFrame& frame, std::span<uint8_t> out);

}  // namespace flashcodec
