#include "selected_kernels.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernel_sets.h"
#include "native/instruction_sets.h"

namespace unified {

namespace {

std::vector<const KernelSet*> find_kernels() {
  std::vector<const KernelSet*> found;
#if defined(__x86_64__)
  const bool has_bf16 = native::has_avx512_bf16() && native::has_avx512_vnni();
  if (has_bf16 && native::has_amx() && native::may_use_amx()) found.push_back(&kAmxKernels);
  if (has_bf16) found.push_back(&kAvx512Bf16Kernels);
  if (native::has_avx512_vnni()) found.push_back(&kAvx512VnniKernels);
  if (native::has_avx512()) found.push_back(&kAvx512Kernels);
  if (native::has_avx2_vnni()) found.push_back(&kAvx2VnniKernels);
  if (native::has_avx2()) found.push_back(&kAvx2Kernels);
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
  const KernelSet* const found = native::find_named(available_kernels(), name);
  if (found == nullptr) throw std::invalid_argument("this machine has no kernels '" + std::string(name) + "'");
  selected().store(found, std::memory_order_relaxed);
}

}  // namespace unified
