#pragma once

namespace fake_cuda {

// Whether kernels of the current context may touch an address: not if it is memory of another GPU, unless this context
// has opened such memory, which makes that GPU its peer.
bool reaches(const void* address);

}  // namespace fake_cuda
