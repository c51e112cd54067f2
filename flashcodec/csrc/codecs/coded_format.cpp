#include "codecs/coded_format.h"

#include <algorithm>

#include "codecs/mpeg.h"
#include "codecs/vpx.h"

namespace flashcodec {

namespace {

using Bytes = std::span<const uint8_t>;

Bytes configuration(const AVCodecParameters& parameters) {
  return {parameters.extradata, static_cast<size_t>(std::max(parameters.extradata_size, 0))};
}

// av1C (AV1 in ISOBMFF, 2.3) begins with a marker bit and has four bytes before its OBUs; others keep bare OBUs.
std::optional<Av1Sequence> av1_sequence(Bytes extra) {
  if (extra.size() > 4 && extra[0] == 0x81) extra = extra.subspan(4);
  return find_av1_sequence(extra);
}

// The direct mode of FFmpeg's interlaced B-VOPs takes the distance of the first B-VOP that was decoded.
bool disposable_mpeg4(Bytes packet, CodedFormat& format) {
  format.interlaced = mpeg4_interlaced(packet).value_or(format.interlaced);
  return !format.interlaced && lone_b_vop(packet);
}

}  // namespace

CodedFormat CodedFormat::of(const AVCodecParameters& parameters) {
  CodedFormat format;
  format.codec = parameters.codec_id;
  const Bytes extra = configuration(parameters);
  if (format.codec == AV_CODEC_ID_H264) format.nal = NalFormat::of_h264(extra);
  if (format.codec == AV_CODEC_ID_HEVC) format.nal = NalFormat::of_hevc(extra);
  if (format.codec == AV_CODEC_ID_AV1) format.av1 = av1_sequence(extra);
  if (format.codec == AV_CODEC_ID_MPEG4) format.interlaced = mpeg4_interlaced(extra).value_or(true);
  return format;
}

bool disposable(Bytes packet, CodedFormat& format) {
  switch (format.codec) {
    case AV_CODEC_ID_H264:
      return !inspect_h264(packet, format.nal).needed;
    case AV_CODEC_ID_HEVC:
      return disposable_hevc(packet, format.nal);
    case AV_CODEC_ID_AV1:
      return disposable_av1(packet, format.av1);
    case AV_CODEC_ID_VP8:
      return format.independent && inspect_vp8(packet).refreshes_nothing;
    case AV_CODEC_ID_VP9:
      return format.independent && inspect_vp9(packet).refreshes_nothing;
    case AV_CODEC_ID_MPEG1VIDEO:
    case AV_CODEC_ID_MPEG2VIDEO:
      return lone_b_picture(packet);
    case AV_CODEC_ID_MPEG4:
      return disposable_mpeg4(packet, format);
    default:
      return false;
  }
}

bool simple_order(Bytes packet, const CodedFormat& format) {
  if (format.codec == AV_CODEC_ID_MPEG4) return single_vop(packet);
  return format.codec == AV_CODEC_ID_MPEG1VIDEO || format.codec == AV_CODEC_ID_MPEG2VIDEO;
}

bool shows(Bytes packet, CodedFormat& format) {
  switch (format.codec) {
    case AV_CODEC_ID_VP8:
      return vp8_shows(packet);
    case AV_CODEC_ID_VP9:
      return vp9_shows(packet);
    case AV_CODEC_ID_AV1:
      return av1_shows(packet, format.av1);
    default:
      return true;
  }
}

bool independent(Bytes packet, const CodedFormat& format) {
  if (format.codec == AV_CODEC_ID_VP8) return inspect_vp8(packet).independent;
  return format.codec == AV_CODEC_ID_VP9 && inspect_vp9(packet).independent;
}

}  // namespace flashcodec
