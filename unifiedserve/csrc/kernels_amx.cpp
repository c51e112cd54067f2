#define SIMD_WIDTH 16
#include "kernels.inl"
// After these:
#include "amx_registers.inl"
// After the registers:
#include "amx_linear_kernel.inl"
// After the blocks:
#include "amx_attention_kernel.inl"
#include "amx_coded_kernel.inl"

namespace unified {

constinit const Bf16Product kAmxProduct = amx_linear;
constinit const Bf16Attention kAmxAttention = {
    .attend = attend<BFloat16, BFloat16, RegisterProducts>,
    .attend_codes = attend<BFloat16, std::int8_t, RegisterProducts>,
    .attend_sequence = amx_sequence,
};
constinit const CodedProducts kAmxCodedProducts = {
    .float32_int8 = amx_codes<float, 8>,
    .float32_int4 = amx_codes<float, 4>,
    .bfloat16_int8 = amx_codes<BFloat16, 8>,
    .bfloat16_int4 = amx_codes<BFloat16, 4>,
};

}  // namespace unified
