#include "bitstream/packet_scan.h"

#include <algorithm>
#include <span>
#include <utility>

#include "codecs/mpeg.h"
#include "codecs/vop_layer.h"

namespace flashcodec {

PacketScan::PacketScan(PacketTable& table, const AVCodecParameters& parameters, bool with_bytes)
    : table_(table),
      parameters_(parameters),
      with_bytes_(with_bytes),
      independent_(with_bytes),
      formats_{CodedFormat::of(parameters)},
      headers_(formats_.front()),
      order_(parameters) {
  if (parameters.codec_id == AV_CODEC_ID_H264) numbers_.emplace(configuration_of(parameters));
  if (parameters.codec_id == AV_CODEC_ID_MPEG4) vops_.emplace().gap(configuration_of(parameters));
  table_.packets.clear();
  table_.states.assign(1, {});
  states_.emplace(DecoderState(), 0);
}

void PacketScan::add(const AVPacket& packet) {
  if (av_packet_get_side_data(&packet, AV_PKT_DATA_ENCRYPTION_INFO, nullptr) != nullptr) {
    table_.fail("the stream is encrypted: decrypt it first", ErrorKind::kUnsupported);
  }
  const bool reconfigured = note_state(packet);
  if (skips_time(packet)) gap_ = true;
  const auto number = static_cast<int32_t>(table_.packets.size());
  Packet& known = table_.packets.emplace_back(Packet{.pts = packet.pts,
                                                     .dts = packet.dts,
                                                     .duration = packet.duration,
                                                     .position = packet.pos,
                                                     .size = packet.size,
                                                     .state = state_,
                                                     .key = (packet.flags & AV_PKT_FLAG_KEY) != 0,
                                                     .discard = (packet.flags & AV_PKT_FLAG_DISCARD) != 0,
                                                     .corrupt = (packet.flags & AV_PKT_FLAG_CORRUPT) != 0});
  table_.contiguous = table_.contiguous && packet.pos >= 0;
  if (!with_bytes_ && !headers_.in_order) return;
  evidence_.places.push_back(order_.place(bytes_of(packet), headers_));
  if (!with_bytes_) return;
  independent_ = independent_ && independent(bytes_of(packet), headers_);
  known.start = start_of(bytes_of(packet), headers_);
  evidence_.pictures += headers_.codec == AV_CODEC_ID_MPEG4 ? coded_vops(bytes_of(packet)) : 1;
  const bool lost =
      (numbers_ && numbers_->gap(bytes_of(packet), headers_.nal)) || (vops_ && vops_->gap(bytes_of(packet)));
  const bool gap = std::exchange(gap_, false) || lost || reconfigured;
  const bool no_picture = known.start == Start::kDamaged && !evidence_.places.back();
  const bool cut = order_.joined() || no_picture || (gap && known.start != Start::kYes);
  const int shown = pictures_shown(bytes_of(packet), headers_);
  known.shown = shown > 0;
  if (note_layer(bytes_of(packet)) || cut || shown > 1) evidence_.joints.push_back(number);
  evidence_.too_large = evidence_.too_large || order_.pixels() > table_.limits.max_pixels;
}

// Whether a picture may be missing before an interlaced MPEG-4 packet. FFmpeg's decoder places the fields of B-VOPs by
// the first one after each video object layer, so it matters which that is.
bool PacketScan::skips_time(const AVPacket& packet) const {
  if (headers_.codec != AV_CODEC_ID_MPEG4 || !headers_.interlaced || table_.packets.empty()) return false;
  const Packet& last = table_.packets.back();
  if (last.dts == AV_NOPTS_VALUE || packet.dts == AV_NOPTS_VALUE || last.duration <= 0) return false;
  return packet.dts - last.dts > last.duration;
}

// What comes with a packet holds from it on. Returns whether there are other parameter sets in it.
bool PacketScan::note_state(const AVPacket& packet) {
  if (packet.side_data_elems == 0) return false;
  const DecoderState before = table_.states[state_];
  const auto [known, fresh] =
      states_.try_emplace(state_after(before, packet), static_cast<int32_t>(table_.states.size()));
  if (known->second == state_) return false;
  const std::span<const uint8_t> configuration = configuration_of(known->first);
  const bool reconfigured = !configuration.empty() && !std::ranges::equal(configuration, configuration_of(before));
  if (reconfigured) configure(configuration);
  if (fresh) {
    table_.states.push_back(known->first);
    formats_.push_back(headers_);
  }
  state_ = known->second;
  return reconfigured;
}

void PacketScan::configure(std::span<const uint8_t> configuration) {
  const ParametersPtr changed = with_configuration(parameters_, configuration);
  headers_ = CodedFormat::of(*changed);
  order_.configure(*changed);
  if (numbers_) numbers_.emplace(configuration);
}

// Returns whether pictures of MPEG-1, 2 or 4 change: FFmpeg's decoders lose those that they hold back.
bool PacketScan::note_layer(std::span<const uint8_t> packet) {
  const AVCodecID codec = headers_.codec;
  const bool mpeg = codec == AV_CODEC_ID_MPEG1VIDEO || codec == AV_CODEC_ID_MPEG2VIDEO;
  const std::span<const uint8_t> layer = mpeg                         ? mpeg_size(packet)
                                         : codec == AV_CODEC_ID_MPEG4 ? mpeg4_layer(packet)
                                                                      : std::span<const uint8_t>();
  if (layer.empty()) return false;
  const bool changed = !layer_.empty() && !std::ranges::equal(layer, layer_);
  layer_.assign(layer.begin(), layer.end());
  if (codec == AV_CODEC_ID_MPEG4) headers_.interlaced = read_vop_layer(layer).interlaced;
  return changed;
}

// A decoder that has been told other parameter sets must be told the first ones, too.
void PacketScan::keep_first_configuration() {
  const std::span<const uint8_t> first = configuration_of(parameters_);
  const auto has_none = [](const DecoderState& state) { return configuration_of(state).empty(); };
  if (first.empty() || std::ranges::all_of(table_.states, has_none)) return;
  for (DecoderState& state : table_.states) {
    if (has_none(state)) state.push_back({AV_PKT_DATA_NEW_EXTRADATA, {first.begin(), first.end()}});
  }
}

OrderEvidence PacketScan::finish() {
  keep_first_configuration();
  for (CodedFormat& format : formats_) format.independent = independent_;
  return std::move(evidence_);
}

}  // namespace flashcodec
