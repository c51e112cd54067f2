#pragma once

#include <string>

#include "native/cuda/driver.h"

namespace native::cuda {

// The GPUs that a process sees, numbered from 0 as it numbers them: CUDA_VISIBLE_DEVICES says which and in which order.

int count_gpus(const Driver& driver);
// Throws CudaError if this process sees none of that number.
Device device_of(const Driver& driver, int gpu);
// Throws CudaError if this process does not see that GPU.
int number_of(const Driver& driver, const Uuid& uuid);

Uuid uuid_of(const Driver& driver, Device device);
// As nvidia-smi writes it: GPU-8-4-4-4-12 hexadecimal digits.
std::string describe(const Uuid& uuid);

// "this process sees 2 GPUs", to end an error's text with.
std::string seen_gpus(int count);

}  // namespace native::cuda
