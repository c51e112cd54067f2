#include "engines/nvdec/decoder_caps.h"

#include <algorithm>

extern "C" {
#include <libavutil/pixdesc.h>
}

#include "engines/nvdec/surface_format.h"

namespace flashcodec {

namespace {

// cudaVideoChromaFormat; -1 for others.
int cuvid_chroma(const AVPixFmtDescriptor& format) {
  if (format.nb_components < 3) return -1;
  if (format.log2_chroma_w == 0 && format.log2_chroma_h == 0) return 3;
  if (format.log2_chroma_w != 1) return -1;
  return format.log2_chroma_h == 1 ? 1 : format.log2_chroma_h == 0 ? 2 : -1;
}

}  // namespace

int cuvid_codec(AVCodecID codec) {
  switch (codec) {
    case AV_CODEC_ID_H264:
      return 4;
    case AV_CODEC_ID_HEVC:
      return 8;
    case AV_CODEC_ID_VP8:
      return 9;
    case AV_CODEC_ID_VP9:
      return 10;
    case AV_CODEC_ID_AV1:
      return 11;
    default:
      return -1;
  }
}

CapsTable::CapsTable(GpuPtr gpu) : gpu_(std::move(gpu)), library_(CuvidLibrary::get()) {
  for (const int codec : {4, 8, 10, 11}) engines_ = std::max(engines_, of({codec, 1, 8}).engines);
}

bool CapsTable::decodes(const Bitstream& stream) {
  const AVCodecParameters& parameters = stream.parameters();
  const AVPixFmtDescriptor* format = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(parameters.format));
  if (format == nullptr) return false;
  const Key key{cuvid_codec(parameters.codec_id), cuvid_chroma(*format), format->comp[0].depth};
  if (key.codec < 0 || key.chroma < 0) return false;
  const DecoderCaps& caps = of(key);
  const int width = parameters.width;
  const int height = parameters.height;
  const int64_t macroblocks = int64_t{(width + 15) / 16} * ((height + 15) / 16);
  const SurfaceFormat surface{key.chroma, key.bit_depth};
  if (surface.pixels() < 0 || (caps.output_formats >> surface.number() & 1) == 0) return false;
  return caps.engines > 0 && width >= caps.min_width && width <= caps.max_width && height >= caps.min_height &&
         height <= caps.max_height && macroblocks <= caps.max_macroblocks;
}

const DecoderCaps& CapsTable::of(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  return found != known_.end() ? found->second : known_.emplace(key, ask(key)).first->second;
}

DecoderCaps CapsTable::ask(const Key& key) const {
  CuvidCaps caps{};
  caps.codec = key.codec;
  caps.chroma = key.chroma;
  caps.bit_depth_minus_8 = static_cast<unsigned>(key.bit_depth - 8);
  const auto now = gpu_->current();
  if (library_.get_caps.pointer(&caps) != 0 || caps.supported == 0) return {};
  return {.engines = std::max<int>(1, caps.engines),
          .min_width = caps.min_width,
          .min_height = caps.min_height,
          .max_width = static_cast<int>(caps.max_width),
          .max_height = static_cast<int>(caps.max_height),
          .max_macroblocks = caps.max_macroblocks,
          .output_formats = caps.output_formats};
}

}  // namespace flashcodec
