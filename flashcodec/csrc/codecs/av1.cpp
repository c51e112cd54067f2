#include "codecs/av1.h"

#include <algorithm>

#include "codecs/bit_reader.h"

namespace flashcodec {

namespace {

using Bytes = std::span<const uint8_t>;

enum ObuType : uint8_t { kSequenceHeader = 1, kFrameHeader = 3, kFrame = 6, kRedundantFrameHeader = 7 };
enum FrameType : uint8_t { kKey = 0, kInter = 1, kIntraOnly = 2, kSwitch = 3 };

struct Obu {
  int type;
  int temporal_id;
  int spatial_id;
  Bytes payload;
};

// Takes an OBU (5.3) from the front; none at the end or if its size is wrong.
std::optional<Obu> next_obu(Bytes& data) {
  if (data.empty()) return std::nullopt;
  const bool extended = (data[0] & 4) != 0;
  const bool sized = (data[0] & 2) != 0;
  Obu obu{data[0] >> 3 & 15, 0, 0, {}};
  size_t at = extended ? 2 : 1;
  if (data.size() < at) return std::nullopt;
  if (extended) {
    obu.temporal_id = data[1] >> 5;
    obu.spatial_id = data[1] >> 3 & 3;
  }
  uint64_t size = 0;
  bool more = sized;
  for (int i = 0; more && i < 8 && at < data.size(); ++i) {  // leb128()
    size |= uint64_t{data[at] & 0x7FU} << (7 * i);
    more = (data[at++] & 0x80) != 0;
  }
  if (!sized) size = data.size() - at;
  if (more || size > data.size() - at) return std::nullopt;
  obu.payload = data.subspan(at, size);
  data = data.subspan(at + size);
  return obu;
}

void read_operating_points(BitReader& bits, Av1Sequence& sequence) {
  int buffer_delay_length = 0;
  if (bits.flag()) {  // timing_info_present_flag
    bits.skip(32 + 32);
    sequence.equal_picture_interval = bits.flag();
    if (sequence.equal_picture_interval) bits.exp_golomb();
    sequence.decoder_model_info_present = bits.flag();
    if (sequence.decoder_model_info_present) {
      buffer_delay_length = static_cast<int>(bits.bits(5)) + 1;
      bits.skip(32);
      sequence.buffer_removal_time_length = static_cast<int>(bits.bits(5)) + 1;
      sequence.frame_presentation_time_length = static_cast<int>(bits.bits(5)) + 1;
    }
  }
  const bool display_delay_present = bits.flag();
  sequence.operating_points = static_cast<int>(bits.bits(5)) + 1;
  for (Av1Sequence::OperatingPoint& point : std::span(sequence.operating_point).first(sequence.operating_points)) {
    point.idc = bits.bits(12);
    if (bits.bits(5) > 7) bits.skip(1);  // seq_level_idx, seq_tier
    point.decoder_model_present = sequence.decoder_model_info_present && bits.flag();
    if (point.decoder_model_present) bits.skip(2 * buffer_delay_length + 1);
    if (display_delay_present && bits.flag()) bits.skip(4);
  }
}

// sequence_header_obu(), 5.5.1
std::optional<Av1Sequence> read_sequence(Bytes payload) {
  BitReader bits(payload);
  Av1Sequence sequence;
  bits.skip(3 + 1);  // seq_profile, still_picture
  sequence.reduced_still_picture_header = bits.flag();
  if (sequence.reduced_still_picture_header) return sequence;
  read_operating_points(bits, sequence);
  const int width_bits = static_cast<int>(bits.bits(4)) + 1;
  const int height_bits = static_cast<int>(bits.bits(4)) + 1;
  bits.skip(width_bits + height_bits);
  if (bits.flag()) {  // frame_id_numbers_present_flag
    const int delta_length = static_cast<int>(bits.bits(4)) + 2;
    sequence.frame_id_length = static_cast<int>(bits.bits(3)) + delta_length + 1;
  }
  bits.skip(3 + 4);  // superblock size, intra tools, inter tools
  const bool enable_order_hint = bits.flag();
  if (enable_order_hint) bits.skip(2);
  if (!bits.flag()) sequence.seq_force_screen_content_tools = static_cast<int>(bits.bits(1));
  if (sequence.seq_force_screen_content_tools > 0 && !bits.flag()) {
    sequence.seq_force_integer_mv = static_cast<int>(bits.bits(1));
  }
  if (enable_order_hint) sequence.order_hint_bits = static_cast<int>(bits.bits(3)) + 1;
  if (bits.overrun()) return std::nullopt;
  return sequence;
}

void skip_buffer_removal_times(BitReader& bits, const Av1Sequence& sequence, const Obu& obu) {
  if (!sequence.decoder_model_info_present || !bits.flag()) return;
  for (const auto& point : std::span(sequence.operating_point).first(sequence.operating_points)) {
    if (!point.decoder_model_present) continue;
    const bool in_temporal_layer = (point.idc >> obu.temporal_id & 1) != 0;
    const bool in_spatial_layer = (point.idc >> (obu.spatial_id + 8) & 1) != 0;
    if (point.idc == 0 || (in_temporal_layer && in_spatial_layer)) bits.skip(sequence.buffer_removal_time_length);
  }
}

// uncompressed_header(), 5.9.2, up to refresh_frame_flags. A frame that is only shown again counts as refreshing: it
// does if it is a key frame, and to decode it costs nothing.
bool refreshes(const Obu& obu, const Av1Sequence& sequence) {
  BitReader bits(obu.payload);
  if (sequence.reduced_still_picture_header || bits.flag()) return true;  // show_existing_frame
  const auto type = static_cast<FrameType>(bits.bits(2));
  const bool show_frame = bits.flag();
  if (type == kSwitch || (type == kKey && show_frame)) return true;
  if (show_frame && sequence.decoder_model_info_present && !sequence.equal_picture_interval) {
    bits.skip(sequence.frame_presentation_time_length);
  }
  if (!show_frame) bits.skip(1);  // showable_frame
  const bool error_resilient = bits.flag();
  bits.skip(1);  // disable_cdf_update
  bool screen_content = sequence.seq_force_screen_content_tools == 1;
  if (sequence.seq_force_screen_content_tools == Av1Sequence::kSelect) screen_content = bits.flag();
  if (screen_content && sequence.seq_force_integer_mv == Av1Sequence::kSelect) bits.skip(1);
  bits.skip(sequence.frame_id_length);
  bits.skip(1);  // frame_size_override_flag
  bits.skip(sequence.order_hint_bits);
  if (type == kInter && !error_resilient) bits.skip(3);  // primary_ref_frame
  skip_buffer_removal_times(bits, sequence, obu);
  return bits.bits(8) != 0 || bits.overrun();
}

bool is_frame_header(const Obu& obu) {
  return obu.type == kFrameHeader || obu.type == kFrame || obu.type == kRedundantFrameHeader;
}

// uncompressed_header(), 5.9.2, up to show_frame
bool frame_shows(const Obu& obu, const std::optional<Av1Sequence>& sequence) {
  if (!sequence || sequence->reduced_still_picture_header) return true;
  BitReader bits(obu.payload);
  if (bits.flag()) return true;  // show_existing_frame
  bits.skip(2);                  // frame_type
  return bits.flag() || bits.overrun();
}

// uncompressed_header(), 5.9.2, up to show_frame
bool is_shown_key(const Obu& obu) {
  BitReader bits(obu.payload);
  if (bits.flag()) return false;  // show_existing_frame
  const auto type = static_cast<FrameType>(bits.bits(2));
  return type == kKey && bits.flag() && !bits.overrun();
}

}  // namespace

std::optional<Av1Sequence> find_av1_sequence(Bytes obus) {
  while (const std::optional<Obu> obu = next_obu(obus)) {
    if (obu->type == kSequenceHeader) return read_sequence(obu->payload);
  }
  return std::nullopt;
}

bool disposable_av1(Bytes packet, std::optional<Av1Sequence>& sequence) {
  bool frames = false;
  while (const std::optional<Obu> obu = next_obu(packet)) {
    if (obu->type == kSequenceHeader) {
      sequence = read_sequence(obu->payload);
      return false;
    }
    if (!is_frame_header(*obu)) continue;
    if (!sequence || obu->spatial_id > 0 || refreshes(*obu, *sequence)) return false;
    frames = true;
  }
  return frames && packet.empty();
}

int av1_pictures_shown(Bytes packet, std::optional<Av1Sequence>& sequence) {
  int shown = 0;
  bool layers = false;
  while (const std::optional<Obu> obu = next_obu(packet)) {
    if (obu->type == kSequenceHeader) sequence = read_sequence(obu->payload);
    const bool frame = obu->type == kFrameHeader || obu->type == kFrame;
    if (!frame || !frame_shows(*obu, sequence)) continue;
    layers = layers || obu->spatial_id > 0;
    shown += obu->spatial_id > 0 ? 0 : 1;
  }
  if (!sequence || !packet.empty()) return 1;  // what cannot be read
  return shown == 0 && layers ? 1 : shown;
}

Start av1_start(Bytes packet, std::optional<Av1Sequence>& sequence) {
  while (const std::optional<Obu> obu = next_obu(packet)) {
    if (obu->type == kSequenceHeader) sequence = read_sequence(obu->payload);
    if (!is_frame_header(*obu)) continue;
    if (!sequence || obu->spatial_id > 0) return Start::kNo;
    return sequence->reduced_still_picture_header || is_shown_key(*obu) ? Start::kYes : Start::kNo;
  }
  return Start::kDamaged;
}

}  // namespace flashcodec
