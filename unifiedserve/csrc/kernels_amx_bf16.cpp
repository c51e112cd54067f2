#define SIMD_WIDTH 16
#include "kernels.inl"
// After these:
#include "amx_registers.inl"
// After the registers:
#include "amx_linear_kernel.inl"

namespace unified {

namespace {

constexpr KernelSet with_amx(KernelSet set) {
  set.bfloat16.linear_many = amx_linear;
  return set;
}

}  // namespace

const KernelSet kAmxBf16Kernels = with_amx(kernel_set("amx_bf16"));

}  // namespace unified
