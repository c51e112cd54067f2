#include "kernels.h"

// GCC 12's own intrinsics are "maybe uninitialized" to it, unless the module is optimised as a whole (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC's own header trips it under the sanitizers.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

// A lambda does not inherit its function's instruction set.
#define SIMD_LAMBDA SIMD_FN

namespace flashcodec {

namespace {

namespace scalar {
#include "kernels_scalar.inl"
}  // namespace scalar

#if defined(__x86_64__)

namespace baseline {
#define SIMD_NAME "sse2"
#define SIMD_BYTES 16
#define SIMD_FN
#include "kernels.inl"
#undef SIMD_NAME
#undef SIMD_BYTES
#undef SIMD_FN
}  // namespace baseline

namespace avx2 {
#define SIMD_NAME "avx2"
#define SIMD_BYTES 32
#define SIMD_FN __attribute__((target("avx2")))
#include "kernels.inl"
#undef SIMD_NAME
#undef SIMD_BYTES
#undef SIMD_FN
}  // namespace avx2

namespace avx512 {
#define SIMD_NAME "avx512"
#define SIMD_BYTES 64
#define SIMD_FN __attribute__((target("avx2,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#include "kernels.inl"
#undef SIMD_NAME
#undef SIMD_BYTES
#undef SIMD_FN
}  // namespace avx512

std::vector<const Kernels*> find_kernels() {
  std::vector<const Kernels*> found;
  const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                          __builtin_cpu_supports("avx512vnni") != 0;
  if (has_avx512) found.push_back(&avx512::kKernels);
  if (__builtin_cpu_supports("avx2") != 0) found.push_back(&avx2::kKernels);
  found.push_back(&baseline::kKernels);
  found.push_back(&scalar::kKernels);
  return found;
}

#else

namespace baseline {
#define SIMD_NAME "baseline"
#define SIMD_BYTES 0
#define SIMD_FN
#include "kernels.inl"
}  // namespace baseline

std::vector<const Kernels*> find_kernels() { return {&baseline::kKernels, &scalar::kKernels}; }

#endif

}  // namespace

std::span<const Kernels* const> available_kernels() {
  static const std::vector<const Kernels*> found = find_kernels();
  return found;
}

const Kernels& kernels_named(std::string_view name) {
  const std::span<const Kernels* const> all = available_kernels();
  const auto found = std::ranges::find(all, name, &Kernels::name);
  if (found == all.end()) throw std::invalid_argument("no kernels named " + std::string(name) + " on this machine");
  return **found;
}

}  // namespace flashcodec
