// The decoders of a GPU, and cores whose pictures go there, too.
#pragma once

#include <mutex>

#include "engines/backend.h"
#include "engines/cpu/cpu_backend.h"
#include "engines/nvdec/decoder_caps.h"
#include "engines/nvdec/decoder_pool.h"
#include "ffmpeg/owned.h"

struct AVBufferRef;

namespace flashcodec {

// By NVIDIA's own library, or by FFmpeg's use of it if $FLASHCODEC_NVDEC is "ffmpeg", which also copies pictures that
// nobody wants: to compare, and a way out.
class NvdecBackend : public Backend {
 public:
  // Throws native::cuda::CudaError if the GPU has no NVDEC or it cannot be used.
  explicit NvdecBackend(GpuPtr gpu);

  std::string name() const override;
  bool on_gpu() const override { return true; }
  // As many threads as keep all of the GPU's NVDEC units busy, or fewer if so many are asked for.
  int engines(int wanted) const override;
  bool decodes(const Bitstream& stream) const override;
  // By the rate of pixels that a unit has, and what a decoder takes to open.
  Estimate estimate(const Bitstream& stream, const PacketCount& packets, int engines) const override;
  bool has_frame_threads() const override { return false; }
  int64_t memory(const Bitstream& stream) const override;
  std::unique_ptr<PictureDecoder> open(const Bitstream& stream, int threads) const override;
  std::unique_ptr<GroupWriter> writer() const override;

 private:
  struct Unref {
    void operator()(AVBufferRef* buffer) const;
  };

  // FFmpeg's device on the GPU, made when first needed. Throws EngineError if it cannot be.
  AVBufferRef* device() const;

  GpuPtr gpu_;
  mutable CapsTable caps_;  // remembers what it has asked
  mutable DecoderPool pool_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<AVBufferRef, Unref> device_;
};

// Cores that decode what NVDEC does not, for one of so many GPUs: each has its part of them.
class UploadingBackend : public CpuBackend {
 public:
  UploadingBackend(GpuPtr gpu, int gpus) : gpu_(std::move(gpu)), gpus_(gpus) {}

  std::string name() const override;
  int engines(int wanted) const override;
  std::unique_ptr<GroupWriter> writer() const override;

 private:
  GpuPtr gpu_;
  int gpus_;
};

}  // namespace flashcodec
