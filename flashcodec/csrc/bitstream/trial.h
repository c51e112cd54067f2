// Which frames come out of a part of a stream that does not begin or go on cleanly: its decoder has the last word.
#pragma once

#include <cstdint>
#include <vector>

#include "bitstream/packets.h"
#include "ffmpeg/packet.h"

namespace flashcodec {

// Packets that a decoder may take before it gives out a picture, generously.
constexpr int32_t kLongestDelay = 64;

struct TrialResult {
  std::vector<int32_t> shown;  // the packets whose frames come out, in the order in which they do
  bool told = true;            // the decoder tells frames apart; else some of the packets are guesses
};

// Decode packets [first, last) in a row. Throws DecodeError once the deadline has passed.
TrialResult try_packets(const PacketTable& table, const AVCodecParameters& parameters, int32_t first, int32_t last,
                        Deadline deadline);

}  // namespace flashcodec
