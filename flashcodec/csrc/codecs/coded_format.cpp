#include "codecs/coded_format.h"

#include <algorithm>
#include <array>

extern "C" {
#include <libavcodec/codec_desc.h>
}

#include "codecs/mpeg.h"
#include "codecs/vpx.h"

namespace flashcodec {

namespace {

using Bytes = std::span<const uint8_t>;

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

Start yes_or_no(bool yes) { return yes ? Start::kYes : Start::kNo; }

Start start_of_type(PictureType type) {
  return type == PictureType::kNone ? Start::kDamaged : yes_or_no(type == PictureType::kIntra);
}

Start start_by_type(Bytes packet, const CodedFormat& format) {
  switch (format.codec) {
    case AV_CODEC_ID_H263:
      return yes_or_no(intra_h263(packet));
    case AV_CODEC_ID_FLV1:
      return yes_or_no(intra_flv1(packet));
    case AV_CODEC_ID_THEORA:
      return yes_or_no(intra_theora(packet));
    case AV_CODEC_ID_FFV1:
      return yes_or_no(intra_ffv1(packet));
    case AV_CODEC_ID_MSMPEG4V2:
    case AV_CODEC_ID_MSMPEG4V3:
    case AV_CODEC_ID_WMV1:
      return yes_or_no(intra_msmpeg4(packet));
    case AV_CODEC_ID_WMV2:
      return yes_or_no(intra_wmv2(packet));
    case AV_CODEC_ID_WMV3:
      return format.wmv3 ? yes_or_no(intra_wmv3(packet, *format.wmv3)) : Start::kUnknown;
    case AV_CODEC_ID_VC1:
      return yes_or_no(enters_vc1(packet));
    case AV_CODEC_ID_RV30:
      return yes_or_no(intra_rv30(packet));
    case AV_CODEC_ID_RV40:
      return yes_or_no(intra_rv40(packet));
    default:
      return Start::kUnknown;
  }
}

}  // namespace

CodedFormat CodedFormat::of(const AVCodecParameters& parameters) {
  CodedFormat format;
  format.codec = parameters.codec_id;
  const AVCodecDescriptor* codec = avcodec_descriptor_get(parameters.codec_id);
  format.intra_only = codec != nullptr && (codec->props & AV_CODEC_PROP_INTRA_ONLY) != 0;
  format.in_order = never_reorders(parameters.codec_id);
  const Bytes extra = configuration_of(parameters);
  if (format.codec == AV_CODEC_ID_H264) format.nal = NalFormat::of_h264(extra);
  if (format.codec == AV_CODEC_ID_HEVC) format.nal = NalFormat::of_hevc(extra);
  if (format.codec == AV_CODEC_ID_AV1) format.av1 = av1_sequence(extra);
  if (format.codec == AV_CODEC_ID_WMV3) format.wmv3 = Wmv3Format::of(extra);
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

bool never_reorders(AVCodecID codec) {
  // FFmpeg allows for B pictures of theirs, which its decoders do not know.
  constexpr std::array in_order{AV_CODEC_ID_H261,      AV_CODEC_ID_H263,      AV_CODEC_ID_H263P,
                                AV_CODEC_ID_FLV1,      AV_CODEC_ID_MSMPEG4V1, AV_CODEC_ID_MSMPEG4V2,
                                AV_CODEC_ID_MSMPEG4V3, AV_CODEC_ID_WMV1,      AV_CODEC_ID_WMV2};
  if (std::ranges::find(in_order, codec) != in_order.end()) return true;
  const AVCodecDescriptor* descriptor = avcodec_descriptor_get(codec);
  return descriptor != nullptr && (descriptor->props & AV_CODEC_PROP_REORDER) == 0;
}

Start start_of(Bytes packet, CodedFormat format) {
  if (format.intra_only) return Start::kYes;
  switch (format.codec) {
    case AV_CODEC_ID_H264:
      return inspect_h264(packet, format.nal).start;
    case AV_CODEC_ID_HEVC:
      return inspect_hevc(packet, format.nal).start;
    case AV_CODEC_ID_AV1:
      return av1_start(packet, format.av1);
    case AV_CODEC_ID_VP8:
      return vp8_start(packet);
    case AV_CODEC_ID_VP9:
      return vp9_start(packet);
    case AV_CODEC_ID_MPEG1VIDEO:
    case AV_CODEC_ID_MPEG2VIDEO:
      return start_of_type(mpeg_picture_type(packet));
    case AV_CODEC_ID_MPEG4:
      return start_of_type(mpeg4_picture_type(packet));
    default:
      return start_by_type(packet, format);
  }
}

int pictures_shown(Bytes packet, CodedFormat& format) {
  switch (format.codec) {
    case AV_CODEC_ID_VP8:
      return vp8_shows(packet) ? 1 : 0;
    case AV_CODEC_ID_VP9:
      return vp9_shows(packet) ? 1 : 0;
    case AV_CODEC_ID_AV1:
      return av1_pictures_shown(packet, format.av1);
    case AV_CODEC_ID_DIRAC:
      return dirac_picture(packet) ? 1 : 0;
    default:
      return 1;
  }
}

bool independent(Bytes packet, const CodedFormat& format) {
  if (format.codec == AV_CODEC_ID_VP8) return inspect_vp8(packet).independent;
  return format.codec == AV_CODEC_ID_VP9 && inspect_vp9(packet).independent;
}

}  // namespace flashcodec
