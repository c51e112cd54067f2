#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ipc::cuda {

// What a process that sees a GPU is told of it.
struct Gpu {
  int number;  // in this process
  std::string name;
  std::string uuid;
  std::pair<int, int> capability;
  std::uint64_t total_bytes;
  int multiprocessors;
  std::string compute_mode;    // which processes may have a context: "default" is any
  std::pair<int, int> driver;  // the CUDA version that it supports
};

// The GPUs that this process sees, by number; makes no context. Throws CudaError if there is none, or no driver.
std::vector<Gpu> list_gpus();

// What could be taken of a GPU now, its primary context made. Throws CudaError if it cannot be used.
std::uint64_t free_bytes(int gpu);

}  // namespace ipc::cuda
