// Decoder configuration and packets straight into the header parsers. An input is: codec (1 byte), length of the
// configuration (1 byte), the configuration, packets, each after its length in units of 4 bytes (1 byte).
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

extern "C" {
#include <libavcodec/defs.h>
#include <libavutil/mem.h>
}

#include "codecs/coded_format.h"
#include "codecs/frame_numbers.h"
#include "codecs/mpeg.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flashcodec;
  // New codecs come last, because seeds say theirs by number.
  constexpr std::array codecs{AV_CODEC_ID_H264,      AV_CODEC_ID_HEVC,  AV_CODEC_ID_VP8,        AV_CODEC_ID_VP9,
                              AV_CODEC_ID_AV1,       AV_CODEC_ID_MPEG4, AV_CODEC_ID_MPEG2VIDEO, AV_CODEC_ID_MPEG1VIDEO,
                              AV_CODEC_ID_H263,      AV_CODEC_ID_FLV1,  AV_CODEC_ID_THEORA,     AV_CODEC_ID_FFV1,
                              AV_CODEC_ID_MSMPEG4V3, AV_CODEC_ID_WMV2,  AV_CODEC_ID_WMV3,       AV_CODEC_ID_VC1,
                              AV_CODEC_ID_RV30,      AV_CODEC_ID_RV40,  AV_CODEC_ID_DIRAC};
  if (size < 2) return 0;
  const std::span<const uint8_t> bytes(data + 2, size - 2);
  const std::span<const uint8_t> extra = bytes.first(std::min<size_t>(data[1], bytes.size()));
  const auto parameters = owned<ParametersPtr>(avcodec_parameters_alloc());
  parameters->codec_type = AVMEDIA_TYPE_VIDEO;
  parameters->codec_id = codecs[data[0] % codecs.size()];
  parameters->extradata = static_cast<uint8_t*>(av_mallocz(extra.size() + AV_INPUT_BUFFER_PADDING_SIZE));
  if (parameters->extradata == nullptr) return 0;
  parameters->extradata_size = static_cast<int>(extra.size());
  std::copy(extra.begin(), extra.end(), parameters->extradata);
  CodedFormat format = CodedFormat::of(*parameters);
  FrameNumbers numbers(extra);
  mpeg4_layer(extra);
  for (std::span<const uint8_t> rest = bytes.subspan(extra.size()); !rest.empty();) {
    const size_t length = std::min<size_t>(size_t{4} * rest[0], rest.size() - 1);
    // A copy of exactly its size: a read past the end is seen.
    const std::vector<uint8_t> packet(rest.begin() + 1, rest.begin() + 1 + static_cast<std::ptrdiff_t>(length));
    disposable(packet, format);
    pictures_shown(packet, format);
    independent(packet, format);
    start_of(packet, format);
    mpeg_size(packet);
    if (format.codec == AV_CODEC_ID_H264) numbers.gap(packet, format.nal);
    rest = rest.subspan(1 + length);
  }
  return 0;
}
