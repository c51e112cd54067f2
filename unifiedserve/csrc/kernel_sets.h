#pragma once

#include "kernels.h"

namespace unified {

extern const KernelSet kPlainKernels;
#if defined(__x86_64__)
extern const KernelSet kAvx2Kernels;
extern const KernelSet kAvx2VnniKernels;
extern const KernelSet kAvx512Kernels;
extern const KernelSet kAvx512VnniKernels;
extern const KernelSet kAvx512Bf16Kernels;
extern const KernelSet kAmxBf16Kernels;
#endif

}  // namespace unified
