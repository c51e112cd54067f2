// NVDEC decoders that nobody uses at the moment.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "engines/nvdec/hardware_decoder.h"

namespace flashcodec {

// Any thread may use it.
class DecoderPool {
 public:
  // Keeps so many, those given back last.
  DecoderPool(GpuPtr gpu, size_t limit) : gpu_(std::move(gpu)), limit_(limit) {}

  // Return one for such streams: one that decodes them already, one that can be told to, or a new one. Throws
  // native::cuda::CudaError if there is no memory left for one.
  std::unique_ptr<HardwareDecoder> take(const DecoderShape& shape);
  // Whether any decoder waits to be taken.
  bool is_warm();
  void give_back(std::unique_ptr<HardwareDecoder> decoder);

 private:
  using Idle = std::deque<std::unique_ptr<HardwareDecoder>>;

  std::unique_ptr<HardwareDecoder> find(const DecoderShape& shape);
  Idle drop_all();

  GpuPtr gpu_;
  const size_t limit_;
  std::mutex mutex_;
  Idle idle_;
};

}  // namespace flashcodec
