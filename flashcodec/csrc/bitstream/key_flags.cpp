#include "bitstream/key_flags.h"

#include <algorithm>

namespace flashcodec {

namespace {

bool contradicts(const Packet& packet) {
  return packet.key && (packet.start == Start::kNo || packet.start == Start::kUnknown);
}

bool is_key(const Packet& packet, bool believed) {
  if (packet.start == Start::kYes) return true;
  const bool open =
      packet.start == Start::kDamaged || packet.start == Start::kGradual || (packet.start == Start::kIntra && believed);
  return packet.key && open;
}

std::string list_starts(std::span<const Packet> packets) {
  constexpr size_t kMostNamed = 4;
  std::string list;
  size_t count = 0;
  for (size_t i = 0; i < packets.size(); ++i) {
    if (packets[i].start != Start::kYes) continue;
    if (count < kMostNamed) list += (count == 0 ? "" : ", ") + std::to_string(i);
    ++count;
  }
  if (count == 0) return "none is a start";
  if (count > kMostNamed) return list + " and " + std::to_string(count - kMostNamed) + " more are starts";
  return list + (count == 1 ? " only is a start" : " only are starts");
}

}  // namespace

std::optional<Doubt> settle_key_flags(std::span<Packet> packets, const std::string& codec) {
  const bool believed = std::ranges::none_of(packets.subspan(1), contradicts);
  for (Packet& packet : packets) packet.key = is_key(packet, believed);
  if (believed) return std::nullopt;
  if (std::ranges::any_of(packets, [](const Packet& packet) { return packet.start == Start::kUnknown; })) {
    return Doubt{"key flags", codec + ": its packets do not tell where decoding may start"};
  }
  return Doubt{"key flags", codec + ": packet " + list_starts(packets)};
}

bool starts(Start start) { return start == Start::kYes || start == Start::kIntra; }

}  // namespace flashcodec
