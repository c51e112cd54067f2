#include "codecs/vop_layer.h"

#include <algorithm>
#include <bit>

#include "codecs/bit_reader.h"

namespace flashcodec {

bool is_vop_layer(std::span<const uint8_t> part) { return part[0] >> 4 == 2; }

VopLayer read_vop_layer(std::span<const uint8_t> part) {
  constexpr unsigned kExtendedAspect = 15, kRectangular = 0;
  BitReader bits(part.subspan(1));
  bits.skip(1 + 8);                   // random_accessible_vol, video_object_type_indication
  if (bits.flag()) bits.skip(4 + 3);  // video_object_layer_verid, priority
  if (bits.bits(4) == kExtendedAspect) bits.skip(16);
  if (bits.flag()) {  // vol_control_parameters
    bits.skip(2 + 1);
    if (bits.flag()) bits.skip(79);  // vbv_parameters
  }
  if (bits.bits(2) != kRectangular) return {};  // FFmpeg hardly decodes other shapes
  bits.skip(1);
  VopLayer layer{.ticks = bits.bits(16)};
  bits.skip(1);
  if (bits.flag()) bits.skip(vop_increment_bits(layer.ticks));
  bits.skip(1 + 13 + 1 + 13 + 1);  // width and height between markers
  layer.interlaced = bits.flag() || bits.overrun();
  return layer;
}

int vop_increment_bits(uint32_t ticks) { return std::bit_width(std::max(ticks, 2U) - 1); }

}  // namespace flashcodec
