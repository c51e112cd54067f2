#include "ffmpeg/packet.h"

extern "C" {
#include <libavcodec/defs.h>
#include <libavutil/mem.h>
}

#include <new>

namespace flashcodec {

ParametersPtr with_configuration(const AVCodecParameters& parameters, std::span<const uint8_t> configuration) {
  auto changed = owned<ParametersPtr>(avcodec_parameters_alloc());
  if (avcodec_parameters_copy(changed.get(), &parameters) < 0) throw std::bad_alloc();
  av_freep(&changed->extradata);
  changed->extradata = static_cast<uint8_t*>(av_mallocz(configuration.size() + AV_INPUT_BUFFER_PADDING_SIZE));
  if (changed->extradata == nullptr) throw std::bad_alloc();
  std::ranges::copy(configuration, changed->extradata);
  changed->extradata_size = static_cast<int>(configuration.size());
  return changed;
}

}  // namespace flashcodec
