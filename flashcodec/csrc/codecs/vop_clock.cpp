#include "codecs/vop_clock.h"

#include <algorithm>

#include "codecs/bit_reader.h"
#include "codecs/start_codes.h"
#include "codecs/vop_layer.h"

namespace flashcodec {

namespace {

using Bytes = std::span<const uint8_t>;

constexpr int kGroup = 0xB3, kVop = 0xB6;
constexpr unsigned kBidirectional = 2;

}  // namespace

bool VopClock::gap(Bytes packet) {
  bool gap = false;
  visit_start_codes(packet, [&](Bytes part) {
    if (is_vop_layer(part)) ticks_ = read_vop_layer(part).ticks;
    if (part[0] == kGroup) take_group(part);
    if (part[0] == kVop && ticks_ > 0) gap = take_vop(part) || gap;
    return true;
  });
  return gap;
}

// group_of_vop(), 6.2.4
void VopClock::take_group(Bytes header) {
  BitReader bits(header.subspan(1));
  const int64_t hours = bits.bits(5);
  const int64_t minutes = bits.bits(6);
  bits.skip(1);
  second_ = (hours * 60 + minutes) * 60 + bits.bits(6);
}

// vop(), 6.2.5, up to vop_time_increment
bool VopClock::take_vop(Bytes vop) {
  constexpr int kMostSeconds = 64;
  BitReader bits(vop.subspan(1));
  const bool between = bits.bits(2) == kBidirectional;
  int seconds = 0;
  while (bits.flag() && seconds < kMostSeconds) ++seconds;
  bits.skip(1);
  const int64_t part = bits.bits(vop_increment_bits(ticks_));
  if (between) {
    const int64_t time = (second_before_ + seconds) * ticks_ + part;
    return known_ == 2 && (time <= references_[0] || time >= references_[1]);
  }
  second_before_ = second_;
  second_ += seconds;
  references_ = {references_[1], second_ * ticks_ + part};
  known_ = std::min(known_ + 1, 2);
  return false;
}

}  // namespace flashcodec
