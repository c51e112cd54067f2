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
    : parser_(av_parser_init(parameters.codec_id)),
      codec_(owned<CodecPtr>(avcodec_alloc_context3(nullptr))),
      ahead_(owned<PacketPtr>(av_packet_alloc())) {
  if (avcodec_parameters_to_context(codec_.get(), &parameters) < 0) throw std::bad_alloc();
  if (parser_ != nullptr) parser_->flags |= PARSER_FLAG_COMPLETE_FRAMES;
}

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
  if (parser_ == nullptr) return;
  uint8_t* out = nullptr;
  int size = 0;
  av_parser_parse2(parser_.get(), codec_.get(), &out, &size, ahead_->data, ahead_->size, ahead_->pts, ahead_->dts,
                   ahead_->pos);
  field_ = parser_->picture_structure == AV_PICTURE_STRUCTURE_TOP_FIELD ||
           parser_->picture_structure == AV_PICTURE_STRUCTURE_BOTTOM_FIELD;
  second_ = field_ && parser_->field_order != AV_FIELD_UNKNOWN;  // it has found the first one
}

}  // namespace flashcodec
