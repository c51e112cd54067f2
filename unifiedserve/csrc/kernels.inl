// The kernels for the instruction set that this file is compiled for; the includer defines SIMD_WIDTH.
#include "kernel_sets.h"
#include "kernels.h"
#include "vector.inl"
// After the vectors:
#include "multiply.inl"
#include "pointwise_kernels.inl"
// After these:
#include "attention_block.inl"
#include "linear_kernel.inl"
#include "panel_kernel.inl"
// After attention's blocks:
#include "attention_kernel.inl"
#include "sequence_kernel.inl"

namespace unified {
namespace {

// Float32 goes without: a row's result does not depend on how many there are.
template <class T>
constexpr bool kPanels = sizeof(T) * Product<T>::kValues == sizeof(float) && Product<T>::kValues > 1;

template <class T>
constexpr Kernels<T> kernels_of() {
  return {
      .linear = linear<T>,
      .pack_panel = kPanels<T> ? pack_panel<T> : nullptr,
      .multiply_panel = kPanels<T> ? multiply_panel<T> : nullptr,
      .attend = attend<T>,
      .attend_sequence = attend_sequence<T>,
      .norm = norm<float, T, T>,
      .norm_row = norm<T, T, T>,
      .norm_in_place = norm_in_place<T>,
      .rotate = rotate<T>,
      .gate = gate<T>,
      .add = add<T>,
      .widen = widen<T>,
      .narrow = narrow<T>,
  };
}

constexpr KernelSet kernel_set(std::string_view name) {
  return {.name = name, .float32 = kernels_of<float>(), .bfloat16 = kernels_of<BFloat16>()};
}

}  // namespace
}  // namespace unified
