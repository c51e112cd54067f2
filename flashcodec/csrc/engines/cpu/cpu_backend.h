// FFmpeg's decoders, and pixels written by this machine's cores.
#pragma once

#include "engines/backend.h"

namespace flashcodec {

class CpuBackend : public Backend {
 public:
  std::string name() const override { return "cores"; }
  bool on_gpu() const override { return false; }
  // One engine for each core that this process may use.
  int engines(int wanted) const override;
  // Whatever has been analysed: that there is a decoder was seen to then.
  bool decodes(const Bitstream& stream) const override;
  // By the cost model of plans.
  Estimate estimate(const Bitstream& stream, const PacketCount& packets, int engines) const override;
  bool has_frame_threads() const override { return true; }
  int64_t memory(const Bitstream& stream) const override;
  // `threads` are FFmpeg's frame threads.
  std::unique_ptr<PictureDecoder> open(const Bitstream& stream, int threads) const override;
  std::unique_ptr<GroupWriter> writer() const override;
};

}  // namespace flashcodec
