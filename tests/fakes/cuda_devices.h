#pragma once

#include <string>

namespace fake_cuda {

// The GPUs that this process sees, a letter each, of those of the machine: CUDA_VISIBLE_DEVICES selects and orders
// them. A client of MPS selects from what the daemon shows, which has been selected by the daemon's own variable.
std::string visible_gpus(const std::string& machine);

}  // namespace fake_cuda
