// The kinds of engines that decode for a device.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engines/backend.h"

namespace flashcodec {

using Backends = std::vector<std::unique_ptr<const Backend>>;

// Those whose outputs are in ordinary memory, or in that of the GPU that this process numbers so. Throws
// native::cuda::CudaError if there is none or it cannot be used.
Backends backends_for(std::optional<int> gpu);

}  // namespace flashcodec
