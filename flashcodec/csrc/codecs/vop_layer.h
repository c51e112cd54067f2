// The video object layer of MPEG-4 part 2 (ISO/IEC 14496-2, 6.2.3), as far as FlashCodec needs it.
#pragma once

#include <cstdint>
#include <span>

namespace flashcodec {

struct VopLayer {
  uint32_t ticks = 0;      // a second (vop_time_increment_resolution); 0 if the layer does not tell
  bool interlaced = true;  // also where it does not tell
};

// Whether this is a video object layer, from behind its start code's 00 00 01 on.
bool is_vop_layer(std::span<const uint8_t> part);

VopLayer read_vop_layer(std::span<const uint8_t> part);

// How many bits a vop_time_increment has.
int vop_increment_bits(uint32_t ticks);

}  // namespace flashcodec
