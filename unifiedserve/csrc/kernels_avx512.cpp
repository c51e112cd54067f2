#define SIMD_WIDTH 16
#include "kernels.inl"

namespace unified {

constinit const KernelSet kAvx512Kernels = kernel_set("avx512");

}  // namespace unified
