// Compressed packets and the parameters of their streams, without FFmpeg's decoders.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

extern "C" {
#include <libavcodec/codec_id.h>
#include <libavcodec/codec_par.h>
#include <libavcodec/packet.h>
#include <libavutil/avutil.h>
}

#include "ffmpeg/owned.h"

namespace flashcodec {

using PacketPtr = std::unique_ptr<AVPacket, FreeByPointer<av_packet_free>>;
using ParametersPtr = std::unique_ptr<AVCodecParameters, FreeByPointer<avcodec_parameters_free>>;

// The decoder's configuration: parameter sets and the like.
inline std::span<const uint8_t> configuration_of(const AVCodecParameters& parameters) {
  return {parameters.extradata, static_cast<size_t>(std::max(parameters.extradata_size, 0))};
}

// Return parameters that are the same but for the decoder's configuration.
ParametersPtr with_configuration(const AVCodecParameters& parameters, std::span<const uint8_t> configuration);

inline std::span<const uint8_t> bytes_of(const AVPacket& packet) {
  return {packet.data, static_cast<size_t>(packet.size)};
}

}  // namespace flashcodec
