#define SIMD_WIDTH 4
#include "kernels.inl"

namespace unified {

constinit const KernelSet kPlainKernels = kernel_set("plain");

}  // namespace unified
