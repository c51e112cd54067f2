// What a decoder must have been told before a packet: parameter sets and palettes that travel beside the packets.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "ffmpeg/packet.h"

namespace flashcodec {

struct SideData {
  AVPacketSideDataType type;
  std::vector<uint8_t> bytes;

  auto operator<=>(const SideData&) const = default;  // NOLINT(modernize-use-nullptr): a false alarm about its 0
};

// Of each type the last that came, in order of their types.
using DecoderState = std::vector<SideData>;

// Return the state after a packet: `before`, but for what comes with the packet.
DecoderState state_after(const DecoderState& before, const AVPacket& packet);

// Make the packet carry this state instead of what it came with.
void carry(const DecoderState& state, AVPacket& packet);

// The parameter sets of a state; empty if it has none.
std::span<const uint8_t> configuration_of(const DecoderState& state);

}  // namespace flashcodec
