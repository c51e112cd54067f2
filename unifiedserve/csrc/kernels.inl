// The kernels for the instruction set that this file is compiled for; the includer defines SIMD_WIDTH. Those that it
// does not take are not compiled.
#include "kernel_sets.h"
#include "kernels.h"
#include "vector.inl"
// After the vectors:
#include "multiply.inl"
#include "pointwise_kernels.inl"
// After these:
#include "attention_block.inl"
#include "linear_tiles.inl"
// After attention's blocks, and linear's tiles:
#include "attention_kernel.inl"
#include "coded_linear_kernel.inl"
#include "linear_kernel.inl"
#include "sequence_kernel.inl"

namespace unified {
namespace {

// All but the products of codes.
template <class T>
constexpr Kernels<T> kernels_of() {
  return {
      .linear = linear<T, Lane<T>>,
      .linear_narrow = narrow_product<T>(),
      .encode = encode<T>,
      .attend = attend<T, T>,
      .attend_codes = attend<T, std::int8_t>,
      .attend_sequence = attend_sequence<T>,
      .norm = norm<float, T, T>,
      .norm_row = norm<T, T, T>,
      .norm_in_place = norm_in_place<T>,
      .rotate = rotate<T>,
      .gate = gate<T>,
      .widen = widen<T>,
      .finish = finish<T>,
      .narrow = narrow<T>,
      .quantize = quantize<T>,
  };
}

constexpr CodedProducts coded_products() {
  return {
      .float32_int8 = linear_codes<float, 8>,
      .float32_int4 = linear_codes<float, 4>,
      .bfloat16_int8 = linear_codes<BFloat16, 8>,
      .bfloat16_int4 = linear_codes<BFloat16, 4>,
  };
}

constexpr KernelSet kernel_set(std::string_view name) {
  return with_products({name, kernels_of<float>(), kernels_of<BFloat16>(), likeliest}, coded_products());
}

}  // namespace
}  // namespace unified
