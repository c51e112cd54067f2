#include "bitstream/picture_order.h"

#include <climits>

namespace flashcodec {

namespace {

using Bytes = std::span<const uint8_t>;

// A sequence's pictures are counted from below zero (8.2.1) up: its number takes the bits above.
constexpr int kCountBits = 33;

bool is_counted(AVCodecID codec) { return codec == AV_CODEC_ID_H264 || codec == AV_CODEC_ID_HEVC; }

}  // namespace

PictureOrder::PictureOrder(const AVCodecParameters& parameters) { configure(parameters); }

void PictureOrder::configure(const AVCodecParameters& parameters) {
  if (is_counted(parameters.codec_id)) parser_.emplace(parameters);
}

std::optional<int64_t> PictureOrder::place(Bytes packet, const CodedFormat& format) {
  joined_ = false;
  switch (format.codec) {
    case AV_CODEC_ID_H264:
    case AV_CODEC_ID_HEVC:
      if (starts_sequence(packet, format)) ++sequence_;
      return by_count(packet);
    case AV_CODEC_ID_MPEG1VIDEO:
    case AV_CODEC_ID_MPEG2VIDEO:
      return by_type(mpeg_picture_type(packet));
    case AV_CODEC_ID_MPEG4:
      return coded_vops(packet) == 1 ? by_type(mpeg4_picture_type(packet)) : std::nullopt;
    case AV_CODEC_ID_DIRAC:
      return last_number_ = dirac_picture(packet).value_or(last_number_);
    default:
      return format.in_order ? std::optional(decoded_++) : std::nullopt;
  }
}

bool PictureOrder::starts_sequence(Bytes packet, const CodedFormat& format) {
  if (format.codec == AV_CODEC_ID_H264) return inspect_h264(packet, format.nal).idr;
  const HevcPicture picture = inspect_hevc(packet, format.nal);
  const bool anew = picture.start == Start::kYes && (picture.bla || ended_);
  joined_ = anew && !picture.idr && decoded_ > 0;
  ended_ = picture.ends_sequence;
  return picture.idr || anew;
}

// A B picture is shown before the picture that came last.
std::optional<int64_t> PictureOrder::by_type(PictureType type) {
  if (type == PictureType::kNone) return std::nullopt;
  if (type == PictureType::kBidirectional) return ((decoded_ - 1) << kCountBits) + ++between_;
  between_ = 0;
  return ++decoded_ << kCountBits;
}

int64_t PictureOrder::pixels() const {
  const AVCodecParserContext* known = parser_ ? parser_->get() : nullptr;
  return known == nullptr ? 0 : int64_t{known->coded_width} * known->coded_height;
}

std::optional<int64_t> PictureOrder::by_count(Bytes packet) {
  ++decoded_;
  const std::optional<int64_t> count = count_of(packet);
  if (!count) return std::nullopt;
  return (sequence_ << kCountBits) + *count;
}

std::optional<int64_t> PictureOrder::count_of(Bytes packet) {
  constexpr int kNone = INT_MIN;
  AVCodecParserContext* known = parser_ ? parser_->get() : nullptr;
  if (known == nullptr) return std::nullopt;
  known->output_picture_number = kNone;
  parser_->parse(packet);
  if (known->output_picture_number == kNone) return std::nullopt;
  return known->output_picture_number;
}

}  // namespace flashcodec
