#define SIMD_WIDTH 16
#include "kernels.inl"
// After these:
#include "amx_registers.inl"
// After the registers:
#include "amx_linear_kernel.inl"
// After the blocks:
#include "amx_coded_kernel.inl"

namespace unified {

constinit const Bf16Product kAmxProduct = amx_linear;
constinit const CodedProducts kAmxCodedProducts = {
    .float32_int8 = amx_codes<float, 8>,
    .float32_int4 = amx_codes<float, 4>,
    .bfloat16_int8 = amx_codes<BFloat16, 8>,
    .bfloat16_int4 = amx_codes<BFloat16, 4>,
};

}  // namespace unified
