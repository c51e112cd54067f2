#include "kernels.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernel_sets.h"

namespace unified {

namespace {

std::vector<const KernelSet*> find_kernels() {
  std::vector<const KernelSet*> found;
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") != 0 &&
                          __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                          __builtin_cpu_supports("avx512vl") != 0;
  if (has_avx512 && __builtin_cpu_supports("avx512bf16") != 0) found.push_back(&kAvx512Bf16Kernels);
  if (has_avx512) found.push_back(&kAvx512Kernels);
  if (has_avx2) found.push_back(&kAvx2Kernels);
#endif
  found.push_back(&kPlainKernels);
  return found;
}

std::atomic<const KernelSet*>& selected() {
  static std::atomic<const KernelSet*> set = available_kernels().front();
  return set;
}

}  // namespace

std::span<const KernelSet* const> available_kernels() {
  static const std::vector<const KernelSet*> sets = find_kernels();
  return sets;
}

const KernelSet& current_kernels() { return *selected().load(std::memory_order_relaxed); }

void select_kernels(std::string_view name) {
  const auto sets = available_kernels();
  const auto found = std::ranges::find(sets, name, &KernelSet::name);
  if (found == sets.end()) throw std::invalid_argument("this machine has no kernels '" + std::string(name) + "'");
  selected().store(*found, std::memory_order_relaxed);
}

}  // namespace unified
