#define SIMD_WIDTH 16
#include "kernels.inl"

namespace unified {

const KernelSet kAvx512VnniKernels = kernel_set("avx512_vnni");

}  // namespace unified
