#pragma once

#include <cstddef>
#include <span>

#include "native/cuda/primary_context.h"

namespace ipc::cuda {

// Page-locks host memory for fast copies to and from GPUs, as long as it is there. Throws CudaError.
class HostRegistration {
 public:
  HostRegistration(std::span<std::byte> bytes, int gpu);
  HostRegistration(const HostRegistration&) = delete;
  HostRegistration& operator=(const HostRegistration&) = delete;
  ~HostRegistration();

 private:
  native::cuda::PrimaryContext context_;
  void* address_;
};

}  // namespace ipc::cuda
