#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tuple>

#include "native/cuda/driver.h"

namespace ipc::cuda {

using native::cuda::IpcHandle;
using native::cuda::Uuid;
// What another process needs to open memory of a GPU; plain data, for it travels in shared memory.
struct DeviceHandle {
  Uuid gpu;
  IpcHandle memory;

  bool operator<(const DeviceHandle& other) const {
    return std::tie(gpu.bytes, memory.bytes) < std::tie(other.gpu.bytes, other.memory.bytes);
  }
};

// A use of memory of a GPU, in the process that took it or in another one (CUDA IPC).
//
// A process maps memory once, however many uses it has, and gives its mapping up with the last of them. The process
// that took the memory frees it then, and its end frees it too. The driver leaves undefined what others see that still
// have it mapped: they must close before.
class DeviceMemory {
 public:
  // Takes `size` bytes, zeroed, of the GPU that this process numbers so. Throws CudaError, with what is free if that is
  // too little.
  static std::unique_ptr<DeviceMemory> allocate(int gpu, std::uint64_t size);
  // Throws CudaError if this process does not see the GPU or the memory is gone.
  static std::unique_ptr<DeviceMemory> open(const DeviceHandle& handle);

  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  const DeviceHandle& handle() const { return handle_; }
  int gpu() const;
  void* address() const;  // of the GPU

  // Copies, done when they return. Throw CudaError; bounds are the caller's to check.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;
  void write(std::uint64_t offset, std::span<const std::byte> bytes);

 private:
  class Mapping;
  class Mappings;

  DeviceMemory(const DeviceHandle& handle, const Mapping& mapping) : handle_(handle), mapping_(mapping) {}

  DeviceHandle handle_;
  const Mapping& mapping_;  // in the process's Mappings, until its last use ends
};

}  // namespace ipc::cuda
