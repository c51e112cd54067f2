#define SIMD_WIDTH 8
#include "kernels.inl"

namespace unified {

const KernelSet kAvx2Kernels = kernel_set("avx2");

}  // namespace unified
