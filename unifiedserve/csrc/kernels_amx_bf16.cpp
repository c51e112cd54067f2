#define SIMD_WIDTH 16
#include "kernels.inl"
// After these:
#include "amx_registers.inl"
// After the registers:
#include "amx_linear_kernel.inl"

namespace unified {

constinit const Bf16Product kAmxProduct = amx_linear;

}  // namespace unified
