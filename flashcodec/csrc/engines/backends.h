// The kinds of engines that decode for a device.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engines/backend.h"

namespace flashcodec {

using Backends = std::vector<std::unique_ptr<const Backend>>;

// Those whose outputs are in the memory of one of the GPUs that this process numbers so, or without any in ordinary
// memory. Throws native::cuda::CudaError if one is not there or cannot be used.
Backends backends_for(std::span<const int> gpus);

}  // namespace flashcodec
