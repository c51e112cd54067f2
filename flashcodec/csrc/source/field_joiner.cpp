#include "source/field_joiner.h"

#include <cstring>

namespace flashcodec {

namespace {

void append(AVPacket* packet, const AVPacket& more) {
  const int size = packet->size;
  if (av_grow_packet(packet, more.size) < 0) throw std::bad_alloc();
  std::memcpy(packet->data + size, more.data, static_cast<size_t>(more.size));
  packet->duration += more.duration;
  if (packet->pts == AV_NOPTS_VALUE) packet->pts = more.pts;
}

}  // namespace

FieldJoiner::FieldJoiner(const AVCodecParameters& parameters)
    : parameters_(with_configuration(parameters, configuration_of(parameters))),
      parser_(parameters),
      ahead_(owned<PacketPtr>(av_packet_alloc())) {}

bool FieldJoiner::read(const Next& next, AVPacket* packet) {
  if (ahead_->size == 0 && !take(next)) return false;
  av_packet_unref(packet);
  av_packet_move_ref(packet, ahead_.get());
  if (!field_ || !take(next) || !second_) return true;
  append(packet, *ahead_);
  av_packet_unref(ahead_.get());
  return true;
}

bool FieldJoiner::take(const Next& next) {
  do {
    if (!next(ahead_.get())) return false;
  } while (ahead_->size == 0);
  inspect();
  return true;
}

void FieldJoiner::inspect() {
  size_t size = 0;
  const uint8_t* sets = av_packet_get_side_data(ahead_.get(), AV_PKT_DATA_NEW_EXTRADATA, &size);
  if (sets != nullptr) parser_.emplace(*with_configuration(*parameters_, {sets, size}));  // it reads them only once
  parser_->parse(bytes_of(*ahead_));
  const AVCodecParserContext* known = parser_->get();
  if (known == nullptr) return;
  field_ = known->picture_structure == AV_PICTURE_STRUCTURE_TOP_FIELD ||
           known->picture_structure == AV_PICTURE_STRUCTURE_BOTTOM_FIELD;
  second_ = field_ && known->field_order != AV_FIELD_UNKNOWN;  // it has found the first one
}

}  // namespace flashcodec
