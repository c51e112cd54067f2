// The choice among the kernels of several instruction sets.
#pragma once

#include <span>
#include <string_view>

#include "kernels.h"

namespace unified {

// What this machine can run, the fastest first; the last is "plain".
std::span<const KernelSet* const> available_kernels();

// The set in use: the fastest, unless another was selected. Throws std::invalid_argument for an unknown name.
const KernelSet& current_kernels();
void select_kernels(std::string_view name);

template <class T>
const Kernels<T>& kernels();
template <>
inline const Kernels<float>& kernels<float>() {
  return current_kernels().float32;
}
template <>
inline const Kernels<BFloat16>& kernels<BFloat16>() {
  return current_kernels().bfloat16;
}

}  // namespace unified
