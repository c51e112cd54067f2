#pragma once

#include "native/cuda/driver.h"

namespace native::cuda {

// The primary context of a GPU, which torch uses too: it exists as long as somebody in this process retains it.
class PrimaryContext {
 public:
  // Of the GPU that this process numbers so; throws CudaError if it sees none of that number.
  explicit PrimaryContext(int gpu);
  // Of the GPU with this UUID; throws CudaError if this process does not see it.
  explicit PrimaryContext(const Uuid& uuid);
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext();

  const Driver& driver() const { return driver_; }
  int gpu() const { return gpu_; }
  Uuid uuid() const;

  // Current in the calling thread for a scope, as most of the driver's calls need it.
  class Current {
   public:
    explicit Current(const PrimaryContext& context);
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current();

   private:
    const Driver& driver_;
  };

 private:
  const Driver& driver_;
  int gpu_;
  Device device_ = 0;
  Context context_ = nullptr;
};

}  // namespace native::cuda
