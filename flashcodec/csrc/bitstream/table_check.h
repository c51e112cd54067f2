// Whether the tables of an MP4 file can be believed, by a few looks at the packets.
#pragma once

#include "bitstream/packets.h"
#include "ffmpeg/packet.h"

namespace flashcodec {

// Return whether key flags and times of the tables are plausible. Reads some ten packets. If not, all are to be read.
bool tables_hold(const PacketTable& table, const AVCodecParameters& parameters);

}  // namespace flashcodec
