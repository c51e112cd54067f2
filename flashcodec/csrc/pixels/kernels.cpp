#include "pixels/kernels.h"

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

#include <stdexcept>
#include <string>
#include <vector>

#include "native/instruction_sets.h"

// A lambda does not inherit its function's instruction set.
#define SIMD_LAMBDA SIMD_FN

namespace flashcodec {

namespace {

namespace scalar {
#include "pixels/kernels_scalar.inl"
}  // namespace scalar

#if defined(__x86_64__)

namespace baseline {
#define SIMD_NAME "sse2"
#define SIMD_BYTES 16
#define SIMD_FN
#include "pixels/kernels.inl"
#undef SIMD_NAME
#undef SIMD_BYTES
#undef SIMD_FN
}  // namespace baseline

namespace avx2 {
#define SIMD_NAME "avx2"
#define SIMD_BYTES 32
#define SIMD_FN __attribute__((target("avx2")))
#include "pixels/kernels.inl"
#undef SIMD_NAME
#undef SIMD_BYTES
#undef SIMD_FN
}  // namespace avx2

namespace avx512 {
#define SIMD_NAME "avx512"
#define SIMD_BYTES 64
#define SIMD_FN __attribute__((target("avx2,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#include "pixels/kernels.inl"
#undef SIMD_NAME
#undef SIMD_BYTES
#undef SIMD_FN
}  // namespace avx512

std::vector<const Kernels*> find_kernels() {
  std::vector<const Kernels*> found;
  if (native::has_avx512_vnni()) found.push_back(&avx512::kKernels);
  if (native::has_avx2()) found.push_back(&avx2::kKernels);
  found.push_back(&baseline::kKernels);
  found.push_back(&scalar::kKernels);
  return found;
}

#else

namespace baseline {
#define SIMD_NAME "baseline"
#define SIMD_BYTES 0
#define SIMD_FN
#include "pixels/kernels.inl"
}  // namespace baseline

std::vector<const Kernels*> find_kernels() { return {&baseline::kKernels, &scalar::kKernels}; }

#endif

}  // namespace

std::span<const Kernels* const> available_kernels() {
  static const std::vector<const Kernels*> found = find_kernels();
  return found;
}

const Kernels& kernels_named(std::string_view name) {
  const Kernels* const found = native::find_named(available_kernels(), name);
  if (found == nullptr) throw std::invalid_argument("no kernels named " + std::string(name) + " on this machine");
  return *found;
}

}  // namespace flashcodec
