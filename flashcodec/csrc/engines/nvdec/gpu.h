// A GPU that decodes: its context, its memory for outputs and the driver's functions for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "native/cuda/primary_context.h"

namespace flashcodec {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned kNoTiming = 2;     // CU_EVENT_DISABLE_TIMING

// What decoding needs of libcuda beside what native::cuda::Driver has.
struct GpuFunctions {
  template <typename... Arguments>
  using Function = native::cuda::Function<Arguments...>;

  explicit GpuFunctions(void* library) : library(library) {}

  void* library;
  Function<void**, const void*> module_load{library, "cuModuleLoadData"};
  Function<void*> module_unload{library, "cuModuleUnload"};
  Function<void**, void*, const char*> module_function{library, "cuModuleGetFunction"};
  Function<void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**> launch{
      library, "cuLaunchKernel"};
  Function<void**, unsigned> stream_create{library, "cuStreamCreate"};
  Function<void*> stream_synchronize{library, "cuStreamSynchronize"};
  Function<void*> stream_destroy{library, "cuStreamDestroy_v2"};
  Function<native::cuda::Address, const void*, std::size_t, void*> copy_to_device{library, "cuMemcpyHtoDAsync_v2"};
  Function<void**, unsigned> event_create{library, "cuEventCreate"};
  Function<void*, void*> event_record{library, "cuEventRecord"};
  Function<void*> event_query{library, "cuEventQuery"};
  Function<void*> event_destroy{library, "cuEventDestroy_v2"};
};

// Outlives what was taken from it. Any thread may use it.
class Gpu : public std::enable_shared_from_this<Gpu> {
 public:
  // The GPU that this process numbers so. Throws native::cuda::CudaError if there is none or no driver.
  explicit Gpu(int number);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int number() const { return context_.gpu(); }
  const native::cuda::Driver& driver() const { return context_.driver(); }
  const GpuFunctions& functions() const { return functions_; }
  // Makes it the calling thread's GPU for a scope.
  native::cuda::PrimaryContext::Current current() const { return native::cuda::PrimaryContext::Current(context_); }

  // Take memory, as it is found and nothing uses it: of what was given back, some of which is kept, or else of the
  // driver. Whoever lets go of it has waited for what uses it, unless that is on the default stream, as is most of what
  // other libraries do with outputs. Throws native::cuda::CudaError if there is none left.
  std::shared_ptr<uint8_t[]> take(size_t bytes);

 private:
  // Memory, and an event that comes when what used it last is done.
  struct Block {
    uint8_t* data = nullptr;
    void* idle = nullptr;
  };

  Block allocate(size_t bytes) const;
  std::optional<Block> find(size_t bytes);
  void give_back(Block block, size_t bytes);
  void release(Block block) const;

  native::cuda::PrimaryContext context_;
  GpuFunctions functions_;
  std::mutex mutex_;
  std::multimap<size_t, Block> free_;  // by size: to free memory waits for all of the GPU, so it is kept
  size_t free_bytes_ = 0;
};

using GpuPtr = std::shared_ptr<Gpu>;

}  // namespace flashcodec
