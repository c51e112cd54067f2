// The times of packets on one clock, where a stream's own is set back or gives no times.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bitstream/packets.h"

namespace flashcodec {

struct Clock {
  std::vector<int64_t> times;     // of each packet: when it is shown, as far as that is known
  std::vector<bool> known;        // by the container, or inferred from what it says
  std::vector<int32_t> set_back;  // packets at which the stream's clock was set back, not at a clean start
};

// How a stream keeps time.
struct TimeKeeping {
  bool may_be_set_back = true;  // not in MP4 and MOV, whose tables hold durations
  bool b_pictures_timed =
      false;              // B pictures have times, others may be without: they are shown when the next is decoded
  int64_t tolerance = 0;  // by which decoding times may go back without a meaning
};

// FFmpeg's output order is that of the timestamps. Where a stream starts its timestamps again, the frames before come
// first all the same, and their timestamps go on. Damaged timestamps may be anything: sums saturate.
Clock read_clock(std::span<const Packet> packets, const TimeKeeping& keeping);

}  // namespace flashcodec
