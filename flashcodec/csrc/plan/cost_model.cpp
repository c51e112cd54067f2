#include "plan/cost_model.h"

namespace flashcodec {

namespace {

struct Coefficients {
  double pixel;  // nanoseconds
  double byte;
};

Coefficients coefficients_of(AVCodecID codec) {
  switch (codec) {
    case AV_CODEC_ID_H264:
      return {0.9, 75};
    case AV_CODEC_ID_HEVC:
      return {1.5, 150};
    case AV_CODEC_ID_VP8:
      return {0.5, 140};
    case AV_CODEC_ID_VP9:
      return {1.2, 80};
    case AV_CODEC_ID_AV1:
      return {0.8, 400};
    case AV_CODEC_ID_MPEG1VIDEO:
    case AV_CODEC_ID_MPEG2VIDEO:
    case AV_CODEC_ID_MPEG4:
      return {0.3, 30};
    default:
      return {1.0, 40};
  }
}

}  // namespace

CostModel::CostModel(const Bitstream& stream) {
  const Coefficients coefficients = coefficients_of(stream.parameters().codec_id);
  const double picture = coefficients.pixel * stream.parameters().width * stream.parameters().height;
  before_.reserve(stream.packets().size() + 1);
  before_.push_back(0);
  for (const Packet& packet : stream.packets()) {
    before_.push_back(before_.back() + static_cast<int64_t>(picture + coefficients.byte * packet.size));
  }
}

int64_t CostModel::of(std::span<const Run> runs) const {
  int64_t cost = 0;
  for (const Run& run : runs) cost += before_[run.last] - before_[run.first];
  return cost / 1000;
}

}  // namespace flashcodec
