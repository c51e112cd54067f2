#define SIMD_WIDTH 8
#include "kernels.inl"

namespace unified {

const KernelSet kAvx2VnniKernels = kernel_set("avx2_vnni");

}  // namespace unified
