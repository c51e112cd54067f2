#define SIMD_WIDTH 16
#include "kernels.inl"

namespace unified {

const KernelSet kAvx512Bf16Kernels = kernel_set("avx512_bf16");

}  // namespace unified
