// Packets as NVDEC's parser takes them.
#pragma once

#include <functional>
#include <memory>
#include <span>

extern "C" {
#include <libavcodec/bsf.h>
}

#include "ffmpeg/owned.h"
#include "ffmpeg/packet.h"

namespace flashcodec {

// H.264 and HEVC with start codes, whatever the container has; other codecs as they are.
class PacketFilter {
 public:
  // Throws EngineError if the stream's parameter sets make no sense or FFmpeg lacks what it takes.
  explicit PacketFilter(const AVCodecParameters& parameters);

  // What a decoder must see before it starts anywhere: parameter sets that packets need not repeat.
  std::span<const uint8_t> header() const;
  // Pass on a packet's bytes. Return false if they make no sense.
  bool filter(const AVPacket& packet, const std::function<void(std::span<const uint8_t>)>& take);
  // Forget what came before.
  void flush();

 private:
  std::unique_ptr<AVBSFContext, FreeByPointer<av_bsf_free>> context_;
  PacketPtr packet_;
};

}  // namespace flashcodec
