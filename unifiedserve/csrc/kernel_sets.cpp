#include "kernel_sets.h"

#include "native/instruction_sets.h"

namespace unified {

#if defined(__x86_64__)

const bool kFetchIntoSecondLevel = native::is_intel();

namespace {

KernelSet with_amx(KernelSet set) {
  set = with_products(set, kAmxCodedProducts);
  set.float32.codes_in_parts = amx_takes_codes;
  set.bfloat16.codes_in_parts = amx_takes_codes;
  set.bfloat16.linear = kAmxProduct;
  set.bfloat16 = with_attention(set.bfloat16, kAmxAttention);
  set.bfloat16.linear_in_parts = true;
  return set;
}

KernelSet named(std::string_view name, KernelSet set) {
  set.name = name;
  return set;
}

}  // namespace

// Their parts are constants (constinit), so they are there before these.
const KernelSet kAvx2VnniKernels = named("avx2_vnni", with_products(kAvx2Kernels, kAvx2VnniProducts));
const KernelSet kAvx512VnniKernels = named("avx512_vnni", with_products(kAvx512Kernels, kAvx512VnniProducts));
const KernelSet kAvx512Bf16Kernels =
    with_products({"avx512_bf16", kAvx512Kernels.float32, kBf16Kernels, kAvx512Kernels.likeliest}, kAvx512VnniProducts);
const KernelSet kAmxKernels = named("amx", with_amx(kAvx512Bf16Kernels));

#else

const bool kFetchIntoSecondLevel = false;

#endif

}  // namespace unified
