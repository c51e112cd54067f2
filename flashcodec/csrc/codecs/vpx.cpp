#include "codecs/vpx.h"

#include <algorithm>
#include <array>
#include <vector>

#include "codecs/bit_reader.h"

namespace flashcodec {

namespace {

using Bytes = std::span<const uint8_t>;

// VP8's boolean decoder (RFC 6386, 7.3) for bits of even probability.
class BoolReader {
 public:
  explicit BoolReader(Bytes data) : data_(data), value_(next() << 8) { value_ |= next(); }

  bool flag() {
    const uint32_t split = 1 + ((range_ - 1) >> 1);
    const bool set = value_ >= split << 8;
    if (set) value_ -= split << 8;
    range_ = set ? range_ - split : split;
    for (; range_ < 128; range_ <<= 1) {
      value_ <<= 1;
      if (++shifted_ == 8) {
        value_ |= next();
        shifted_ = 0;
      }
    }
    return set;
  }

  uint32_t bits(int count) {
    uint32_t value = 0;
    for (; count > 0; --count) value = value << 1 | (flag() ? 1 : 0);
    return value;
  }

  // A number that is only there if a flag says so; returns the flag.
  bool optional_bits(int count) {
    const bool present = flag();
    if (present) bits(count);
    return present;
  }

  bool overrun() const { return at_ > data_.size(); }

 private:
  uint32_t next() { return at_++ < data_.size() ? data_[at_ - 1] : 0; }

  Bytes data_;
  size_t at_ = 0;
  uint32_t value_;
  uint32_t range_ = 255;
  int shifted_ = 0;
};

struct Segmentation {
  bool enabled = false;
  bool updates_map = false;
  bool updates_data = false;
};

// update_segmentation()
Segmentation read_segmentation(BoolReader& bits) {
  Segmentation segmentation{.enabled = bits.flag()};
  if (!segmentation.enabled) return segmentation;
  segmentation.updates_map = bits.flag();
  segmentation.updates_data = bits.flag();
  if (segmentation.updates_data) {
    bits.flag();                                            // segment_feature_mode
    for (int i = 0; i < 4; ++i) bits.optional_bits(7 + 1);  // quantiser
    for (int i = 0; i < 4; ++i) bits.optional_bits(6 + 1);  // loop filter
  }
  for (int i = 0; segmentation.updates_map && i < 3; ++i) bits.optional_bits(8);
  return segmentation;
}

// mb_lf_adjustments(): whether the deltas of this frame may come from another one.
bool keeps_filter_deltas(BoolReader& bits) {
  if (!bits.flag()) return false;  // loop_filter_adj_enable
  if (!bits.flag()) return true;   // mode_ref_lf_delta_update
  bool all = true;
  for (int i = 0; i < 8; ++i) all = bits.optional_bits(6 + 1) && all;
  return !all;
}

// frame_marker and profile; nullopt for what is no frame of VP9.
std::optional<unsigned> read_vp9_profile(BitReader& bits) {
  if (bits.bits(2) != 2) return std::nullopt;
  const unsigned low = bits.bits(1);
  const unsigned profile = low | bits.bits(1) << 1;
  if (profile == 3) bits.skip(1);
  return profile;
}

// More than one frame in the packet (VP9, annex B).
bool is_superframe(Bytes packet) { return !packet.empty() && (packet.back() & 0xE0) == 0xC0; }

// The frames of a packet: those that the index at its end tells of, or else all of it. None if the index is damaged.
std::vector<Bytes> vp9_frames(Bytes packet) {
  if (!is_superframe(packet)) return {packet};
  const uint8_t marker = packet.back();
  const size_t count = (marker & 7U) + 1;
  const size_t size_bytes = (marker >> 3 & 3U) + 1;
  const size_t index_bytes = 2 + count * size_bytes;
  if (packet.size() < index_bytes || packet[packet.size() - index_bytes] != marker) return {packet};
  Bytes index = packet.last(index_bytes - 1);
  packet = packet.first(packet.size() - index_bytes);
  std::vector<Bytes> frames;
  for (size_t i = 0; i < count; ++i, index = index.subspan(size_bytes)) {
    size_t size = 0;
    for (size_t byte = size_bytes; byte-- > 0;) size = size << 8 | index[byte];
    if (size > packet.size()) return {};
    frames.push_back(packet.first(size));
    packet = packet.subspan(size);
  }
  return frames;
}

// uncompressed_header(), 6.2, up to show_frame
bool vp9_frame_shows(Bytes frame) {
  BitReader bits(frame);
  if (!read_vp9_profile(bits) || bits.flag()) return true;  // show_existing_frame
  bits.skip(1);                                             // frame_type
  return bits.flag() || bits.overrun();
}

}  // namespace

// RFC 6386, 9.2 to 9.11 and 19.2
VpxFrame inspect_vp8(Bytes packet) {
  const bool key = !packet.empty() && (packet[0] & 1) == 0;
  const size_t tag = key ? 10 : 3;
  if (packet.size() <= tag) return {};
  BoolReader bits(packet.subspan(tag));
  if (key) bits.bits(2);  // color_space, clamping_type
  const Segmentation segmentation = read_segmentation(bits);
  bits.bits(1 + 6 + 3);  // filter type, level, sharpness
  const bool own_segments = !segmentation.enabled || segmentation.updates_map;
  const bool independent = !keeps_filter_deltas(bits) && own_segments && !bits.overrun();
  if (key) return {.independent = independent, .refreshes_nothing = false};
  bits.bits(2 + 7);                                       // partitions, y_ac_qi
  for (int i = 0; i < 5; ++i) bits.optional_bits(4 + 1);  // quantiser deltas
  const bool golden = bits.flag();
  const bool alternate = bits.flag();
  bool changes = golden || alternate || segmentation.updates_data;
  if (!golden) changes = bits.bits(2) != 0 || changes;     // copy_buffer_to_golden
  if (!alternate) changes = bits.bits(2) != 0 || changes;  // copy_buffer_to_alternate
  bits.bits(2);                                            // sign biases
  changes = bits.flag() || changes;                        // refresh_entropy_probs
  changes = bits.flag() || changes;                        // refresh_last
  return {.independent = independent, .refreshes_nothing = !changes && !bits.overrun()};
}

// RFC 6386, 9.1
Start vp8_start(Bytes packet) {
  constexpr std::array<uint8_t, 3> kStartCode{0x9D, 0x01, 0x2A};  // behind a key frame's tag
  if (packet.size() <= 3) return Start::kDamaged;
  if ((packet[0] & 1) != 0) return Start::kNo;
  const Bytes code = packet.subspan(3, std::min(packet.size() - 3, kStartCode.size()));
  return std::ranges::equal(code, kStartCode) ? Start::kYes : Start::kDamaged;
}

// uncompressed_header(), 6.2, up to frame_type
Start vp9_start(Bytes packet) {
  const std::vector<Bytes> frames = vp9_frames(packet);
  if (frames.empty()) return Start::kDamaged;
  BitReader bits(frames.front());
  if (!read_vp9_profile(bits)) return Start::kDamaged;
  return !bits.flag() && !bits.flag() && !bits.overrun() ? Start::kYes : Start::kNo;
}

// RFC 6386, 9.1
bool vp8_shows(Bytes packet) { return packet.empty() || (packet[0] & 0x10) != 0; }

bool vp9_shows(Bytes packet) {
  const std::vector<Bytes> frames = vp9_frames(packet);
  return frames.empty() || std::ranges::any_of(frames, vp9_frame_shows);
}

// uncompressed_header(), 6.2. A frame that is only shown again costs nothing to decode, so it counts as refreshing.
VpxFrame inspect_vp9(Bytes packet) {
  if (is_superframe(packet)) return {};
  BitReader bits(packet);
  if (!read_vp9_profile(bits)) return {};
  if (bits.flag()) return {.independent = true, .refreshes_nothing = false};  // show_existing_frame
  const bool key = !bits.flag();
  const bool shown = bits.flag();
  const bool error_resilient = bits.flag();
  VpxFrame frame{.independent = key || error_resilient, .refreshes_nothing = false};
  if (key || !error_resilient) return frame;
  const bool intra_only = !shown && bits.flag();
  frame.refreshes_nothing = !intra_only && bits.bits(8) == 0 && !bits.overrun();  // refresh_frame_flags
  return frame;
}

// uncompressed_header(), frame_sync_code(), color_config() and frame_size(), 6.2
std::optional<Vp9Format> vp9_format(Bytes packet) {
  constexpr uint32_t kSyncCode = 0x498342;
  constexpr int kRgb = 7;
  BitReader bits(packet);
  const std::optional<unsigned> profile = read_vp9_profile(bits);
  if (!profile || (*profile & 1) != 0) return std::nullopt;  // 1 and 3: other subsampling than 4:2:0
  if (bits.flag() || bits.flag()) return std::nullopt;       // show_existing_frame, frame_type
  bits.skip(2);                                              // show_frame, error_resilient_mode
  if (bits.bits(24) != kSyncCode) return std::nullopt;
  Vp9Format format{.profile = static_cast<int>(*profile)};
  if (*profile == 2) format.bit_depth = bits.flag() ? 12 : 10;
  format.color_space = static_cast<int>(bits.bits(3));
  if (format.color_space == kRgb) return std::nullopt;
  format.full_range = bits.flag();
  format.width = static_cast<int>(bits.bits(16)) + 1;
  format.height = static_cast<int>(bits.bits(16)) + 1;
  if (bits.overrun()) return std::nullopt;
  return format;
}

}  // namespace flashcodec
