#define SIMD_WIDTH 16
#include "kernels.inl"

namespace unified {

constinit const Kernels<BFloat16> kBf16Kernels = kernels_of<BFloat16>();

}  // namespace unified
