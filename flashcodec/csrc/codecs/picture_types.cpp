#include "codecs/picture_types.h"

#include <array>

#include "codecs/bit_reader.h"
#include "codecs/start_codes.h"

namespace flashcodec {

using Bytes = std::span<const uint8_t>;

bool intra_h263(Bytes packet) {
  constexpr uint32_t kStartCode = 32;
  constexpr uint32_t kExtended = 7;
  BitReader bits(packet);
  if (bits.bits(22) != kStartCode) return false;
  bits.skip(8 + 2 + 3);  // temporal reference, constants, display
  if (bits.bits(3) != kExtended) return !bits.flag() && !bits.overrun();
  if (bits.bits(3) == 1) bits.skip(18);  // OPPTYPE
  return bits.bits(3) == 0 && !bits.overrun();
}

bool intra_flv1(Bytes packet) {
  constexpr std::array size_bits{2 * 8, 2 * 16};
  BitReader bits(packet);
  if (bits.bits(17) != 1) return false;
  bits.skip(5 + 8);  // version, temporal reference
  const uint32_t size = bits.bits(3);
  if (size < size_bits.size()) bits.skip(size_bits[size]);
  return bits.bits(2) == 0 && !bits.overrun();
}

bool intra_theora(Bytes packet) { return !packet.empty() && (packet[0] & 0xC0) == 0; }

bool intra_ffv1(Bytes packet) {
  constexpr int kHalf = 0x7F80;
  return packet.size() >= 2 && (packet[0] << 8 | packet[1]) >= kHalf;
}

bool intra_msmpeg4(Bytes packet) { return !packet.empty() && packet[0] >> 6 == 0; }

bool intra_wmv2(Bytes packet) { return !packet.empty() && packet[0] >> 7 == 0; }

namespace {

// The bits of the first slice: the packet begins with the number of slices, and where each is.
BitReader first_rv_slice(Bytes packet) {
  constexpr size_t kSliceBytes = 8;
  const size_t head = packet.empty() ? 0 : 1 + kSliceBytes * (packet[0] + size_t{1});
  return BitReader(head < packet.size() ? packet.subspan(head) : Bytes{});
}

}  // namespace

bool intra_rv30(Bytes packet) {
  BitReader bits = first_rv_slice(packet);
  bits.skip(3);
  return bits.bits(2) <= 1 && !bits.overrun();
}

bool intra_rv40(Bytes packet) {
  BitReader bits = first_rv_slice(packet);
  bits.skip(1);
  return bits.bits(2) <= 1 && !bits.overrun();
}

bool enters_vc1(Bytes packet) {
  constexpr int kEntryPoint = 0x0E, kFrame = 0x0D;
  bool enters = false;
  visit_start_codes(packet, [&](Bytes part) {
    enters = enters || part[0] == kEntryPoint;
    return !enters && part[0] != kFrame;
  });
  return enters;
}

std::optional<uint32_t> dirac_picture(Bytes packet) {
  constexpr uint32_t kPrefix = 0x42424344;  // "BBCD"
  constexpr uint32_t kPicture = 8;
  constexpr size_t kHead = 4 + 1 + 4 + 4;  // prefix, code, distances to the next unit and the one before
  while (packet.size() > kHead) {
    BitReader bits(packet);
    if (bits.bits(32) != kPrefix) return std::nullopt;
    const bool picture = (bits.bits(8) & kPicture) != 0;
    const uint32_t next = bits.bits(32);
    bits.skip(32);
    if (picture) return bits.bits(32);
    if (next < kHead || next > packet.size()) return std::nullopt;
    packet = packet.subspan(next);
  }
  return std::nullopt;
}

std::optional<Wmv3Format> Wmv3Format::of(Bytes configuration) {
  BitReader bits(configuration);
  bits.skip(24);
  Wmv3Format format{.range_reduced = bits.flag()};
  format.b_pictures = bits.bits(3) != 0;
  bits.skip(2);
  format.interpolated = bits.flag();
  if (bits.overrun()) return std::nullopt;
  return format;
}

bool intra_wmv3(Bytes packet, const Wmv3Format& format) {
  BitReader bits(packet);
  bits.skip((format.interpolated ? 1 : 0) + 2 + (format.range_reduced ? 1 : 0));
  const bool predicted = bits.flag();
  return !predicted && (!format.b_pictures || bits.flag()) && !bits.overrun();
}

}  // namespace flashcodec
