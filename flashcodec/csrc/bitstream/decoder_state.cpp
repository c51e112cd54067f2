#include "bitstream/decoder_state.h"

#include <algorithm>
#include <array>
#include <new>

namespace flashcodec {

namespace {

constexpr std::array kLasting{AV_PKT_DATA_PALETTE, AV_PKT_DATA_NEW_EXTRADATA};

}  // namespace

DecoderState state_after(const DecoderState& before, const AVPacket& packet) {
  DecoderState state = before;
  for (const AVPacketSideDataType type : kLasting) {
    size_t size = 0;
    const uint8_t* data = av_packet_get_side_data(&packet, type, &size);
    if (data == nullptr) continue;
    std::erase_if(state, [&](const SideData& known) { return known.type == type; });
    state.push_back({type, {data, data + size}});
  }
  std::ranges::sort(state, {}, &SideData::type);
  return state;
}

void carry(const DecoderState& state, AVPacket& packet) {
  for (const SideData& part : state) {
    uint8_t* data = av_packet_new_side_data(&packet, part.type, part.bytes.size());
    if (data == nullptr) throw std::bad_alloc();
    std::ranges::copy(part.bytes, data);
  }
}

std::span<const uint8_t> configuration_of(const DecoderState& state) {
  const auto found = std::ranges::find(state, AV_PKT_DATA_NEW_EXTRADATA, &SideData::type);
  return found == state.end() ? std::span<const uint8_t>() : std::span<const uint8_t>(found->bytes);
}

}  // namespace flashcodec
