// A stream of work on a GPU.
#pragma once

#include <cstddef>
#include <span>

#include "engines/nvdec/gpu.h"

namespace flashcodec {

// What a stream waits for: nothing, or all that FFmpeg does, which works on the default stream.
enum class StreamOrder { kAlone, kBehindDefault };

// Work in the order in which it is given. One thread uses it.
class GpuStream {
 public:
  // Throws native::cuda::CudaError.
  explicit GpuStream(GpuPtr gpu, StreamOrder order = StreamOrder::kAlone);
  // Waits until all is done.
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  const GpuPtr& gpu() const { return gpu_; }
  void* handle() const { return handle_; }
  // Copy bytes, which stay as they are until the fence, to the GPU's memory.
  void copy(uint8_t* to, std::span<const std::byte> from);
  // Return when all is done.
  void fence();

 private:
  GpuPtr gpu_;
  void* handle_ = nullptr;
};

}  // namespace flashcodec
