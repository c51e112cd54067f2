#define SIMD_WIDTH 4
#include "kernels.inl"

namespace unified {

const KernelSet kPlainKernels = kernel_set("plain");

}  // namespace unified
