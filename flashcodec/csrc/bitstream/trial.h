// Which frames come out of a part of a stream that does not begin or go on cleanly: its decoder has the last word.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bitstream/packets.h"
#include "ffmpeg/packet.h"

namespace flashcodec {

// Decode packets [first, last) in a row; return the packets whose frames come out, in the order in which they do. None
// if the decoder does not tell frames apart.
std::optional<std::vector<int32_t>> try_packets(const PacketTable& table, const AVCodecParameters& parameters,
                                                int32_t first, int32_t last);

}  // namespace flashcodec
