#define SIMD_WIDTH 8
#include "kernels.inl"

namespace unified {

constinit const KernelSet kAvx2Kernels = kernel_set("avx2");

}  // namespace unified
