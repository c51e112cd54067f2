// What the processor can run, and the choice among kernels that are compiled for several instruction sets.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>

namespace native {

#if defined(__x86_64__)

inline bool has_avx2() { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0; }

// With the extensions that all processors with AVX-512 since Skylake have.
inline bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

inline bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni") != 0; }
inline bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16") != 0; }

#endif

// The one of `sets` with this `name`, or null.
template <class Set>
const Set* find_named(std::span<const Set* const> sets, std::string_view name) {
  const auto found = std::ranges::find(sets, name, &Set::name);
  return found == sets.end() ? nullptr : *found;
}

}  // namespace native
