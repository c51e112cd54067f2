// The kernels by instruction set. Files that are compiled for one each have those that differ from another set's,
// because compiling them all for each takes minutes (kernel_sets.cpp puts them together).
#pragma once

#include "kernels.h"

namespace unified {

// What VNNI computes otherwise.
struct CodedProducts {
  void (*float32_int8)(const CodedTile<float>& tile);
  void (*float32_int4)(const CodedTile<float>& tile);
  void (*bfloat16_int8)(const CodedTile<BFloat16>& tile);
  void (*bfloat16_int4)(const CodedTile<BFloat16>& tile);
};

// That of a type and so many bits.
template <class T, int kBits>
constexpr auto product_of(const CodedProducts& products) {
  if constexpr (std::is_same_v<T, float>) {
    return kBits == 8 ? products.float32_int8 : products.float32_int4;
  } else {
    return kBits == 8 ? products.bfloat16_int8 : products.bfloat16_int4;
  }
}

constexpr KernelSet with_products(KernelSet set, const CodedProducts& products) {
  set.float32.linear_int8 = products.float32_int8;
  set.float32.linear_int4 = products.float32_int4;
  set.bfloat16.linear_int8 = products.bfloat16_int8;
  set.bfloat16.linear_int4 = products.bfloat16_int4;
  return set;
}

using Bf16Product = void (*)(const LinearTile<BFloat16>& tile);

struct Bf16Attention {
  decltype(Kernels<BFloat16>::attend) attend;
  decltype(Kernels<BFloat16>::attend_codes) attend_codes;
  decltype(Kernels<BFloat16>::attend_sequence) attend_sequence;
};

constexpr Kernels<BFloat16> with_attention(Kernels<BFloat16> kernels, const Bf16Attention& attention) {
  kernels.attend = attention.attend;
  kernels.attend_codes = attention.attend_codes;
  kernels.attend_sequence = attention.attend_sequence;
  return kernels;
}

// Whether weights on their way from memory go into the second-level cache. Intel's processors have few lines at a time
// on their way into the first one alone: half as many bytes a second.
extern const bool kFetchIntoSecondLevel;

// Whether AMX multiplies codes sooner than vectors do: some rows, and groups that fill at least half of a register.
constexpr bool amx_takes_codes(std::int64_t rows, std::int64_t group) { return rows >= 16 && group >= 32; }

extern const KernelSet kPlainKernels;
#if defined(__x86_64__)
extern const KernelSet kAvx2Kernels;
extern const KernelSet kAvx512Kernels;
extern const CodedProducts kAvx2VnniProducts;
extern const CodedProducts kAvx512VnniProducts;
extern const Kernels<BFloat16> kBf16Kernels;  // but products of codes
extern const Bf16Product kAmxProduct;
extern const Bf16Attention kAmxAttention;
extern const CodedProducts kAmxCodedProducts;

extern const KernelSet kAvx2VnniKernels;
extern const KernelSet kAvx512VnniKernels;
extern const KernelSet kAvx512Bf16Kernels;
extern const KernelSet kAmxKernels;
#endif

}  // namespace unified
