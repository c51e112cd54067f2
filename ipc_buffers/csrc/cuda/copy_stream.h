#pragma once

#include <span>

#include "native/cuda/primary_context.h"

namespace ipc {
struct CopyRun;
}

namespace ipc::cuda {

// A stream of a GPU for copies from GPUs to it, apart from what else that does.
class CopyStream {
 public:
  // Throws CudaError.
  explicit CopyStream(int gpu);
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;
  ~CopyStream();

  // Returns when an event behind all of them has come. Throws CudaError. Any thread may call it.
  void copy(std::span<const CopyRun> runs) const;

 private:
  native::cuda::PrimaryContext context_;
  void* stream_ = nullptr;
};

}  // namespace ipc::cuda
