// Whether decoding can start where the container says so.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "bitstream/doubt.h"
#include "bitstream/packets.h"

namespace flashcodec {

// Make the key flags of packets that were looked at what their headers say. Flags are believed as far as a header
// leaves that open: an intra picture that no recovery point goes with, a gradual refresh. Return why they are not
// believed.
std::optional<Doubt> settle_key_flags(std::span<Packet> packets, const std::string& codec);

// Whether one can start decoding at a packet that is a key packet of its container, the flags of which are believed.
bool starts(Start start);

}  // namespace flashcodec
