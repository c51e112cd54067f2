// What the processor can run, and the choice among kernels that are compiled for several instruction sets.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#include <algorithm>
#include <span>
#include <string_view>

namespace native {

#if defined(__x86_64__)

inline bool is_intel() { return __builtin_cpu_is("intel") != 0; }

inline bool has_avx2() { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0; }

// With the extensions that all processors with AVX-512 since Skylake have.
inline bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

// The compiler has no name for it: it is bit 4 of EAX of leaf 7, subleaf 1 (Intel SDM, CPUID).
inline bool has_avx2_vnni() {
  unsigned int eax = 0;
  unsigned int ebx = 0;
  unsigned int ecx = 0;
  unsigned int edx = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1U << 4)) != 0;
}

inline bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni") != 0; }
inline bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16") != 0; }

// Bits 22 (AMX-BF16), 24 (AMX-TILE) and 25 (AMX-INT8) of EDX of leaf 7, which older compilers have no names for.
inline bool has_amx() {
  constexpr unsigned int kBits = 1U << 22 | 1U << 24 | 1U << 25;
  unsigned int eax = 0;
  unsigned int ebx = 0;
  unsigned int ecx = 0;
  unsigned int edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kBits) == kBits;
}

// Asks Linux to keep AMX's registers for all threads of this process and of those that it forks: without its leave they
// must not be touched. Kernels before 5.16 know nothing of it.
inline bool may_use_amx() {
#if defined(__linux__)
  constexpr long kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  constexpr long kTileData = 18;     // the registers' place in XCR0
  return ::syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

#endif

// The one of `sets` with this `name`, or null.
template <class Set>
const Set* find_named(std::span<const Set* const> sets, std::string_view name) {
  const auto found = std::ranges::find(sets, name, &Set::name);
  return found == sets.end() ? nullptr : *found;
}

}  // namespace native
