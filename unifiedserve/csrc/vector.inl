// Vectors of SIMD_WIDTH floats by the compilers' vector extension, for one instruction set. Everything here has
// internal linkage, and nothing uses inline functions of the standard library: the linker could give them to other
// files.
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bfloat16.h"
#include "float16.h"

namespace unified {
namespace {

constexpr std::int64_t kWidth = SIMD_WIDTH;

using Float __attribute__((vector_size(4 * SIMD_WIDTH))) = float;
using Int __attribute__((vector_size(4 * SIMD_WIDTH))) = std::int32_t;
using Word __attribute__((vector_size(4 * SIMD_WIDTH))) = std::uint32_t;
using Half __attribute__((vector_size(2 * SIMD_WIDTH))) = std::uint16_t;

inline Float as_float(Word bits) { return __builtin_bit_cast(Float, bits); }
inline Word as_word(Float value) { return __builtin_bit_cast(Word, value); }
inline Float splat(float value) { return Float{} + value; }
inline Float splat_bits(std::uint32_t bits) { return as_float(Word{} + bits); }

inline Float load(const float* from) {
  Float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline Half load_bits(const BFloat16* from) {
  Half bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

#if SIMD_WIDTH == 16
// Without a mask, GCC 12 warns of what its own headers leave undefined.
constexpr std::uint16_t kAllLanes = 0xffff;
#endif

// What compilers make of a conversion between integers goes through halves of the vector, or through all elements.
inline Word widen_bits(Half bits) {
#if SIMD_WIDTH == 16 && defined(__AVX512F__)
  return __builtin_bit_cast(Word, _mm512_maskz_cvtepu16_epi32(kAllLanes, __builtin_bit_cast(__m256i, bits)));
#elif SIMD_WIDTH == 8 && defined(__AVX2__)
  return __builtin_bit_cast(Word, _mm256_cvtepu16_epi32(__builtin_bit_cast(__m128i, bits)));
#else
  return __builtin_convertvector(bits, Word);
#endif
}

inline Float load(const BFloat16* from) { return as_float(widen_bits(load_bits(from)) << 16); }

using Code __attribute__((vector_size(SIMD_WIDTH))) = std::uint8_t;
using SignedCode __attribute__((vector_size(SIMD_WIDTH))) = std::int8_t;

inline Int load_codes(const std::uint8_t* from) {
  Code codes;
  std::memcpy(&codes, from, sizeof codes);
#if SIMD_WIDTH == 16 && defined(__AVX512F__)
  return __builtin_bit_cast(Int, _mm512_maskz_cvtepu8_epi32(kAllLanes, __builtin_bit_cast(__m128i, codes)));
#elif SIMD_WIDTH == 8 && defined(__AVX2__)
  return __builtin_bit_cast(Int, _mm256_cvtepu8_epi32(_mm_loadu_si64(&codes)));
#else
  return __builtin_convertvector(codes, Int);
#endif
}

inline Int load_codes(const std::int8_t* from) {
  SignedCode codes;
  std::memcpy(&codes, from, sizeof codes);
#if SIMD_WIDTH == 16 && defined(__AVX512F__)
  return __builtin_bit_cast(Int, _mm512_maskz_cvtepi8_epi32(kAllLanes, __builtin_bit_cast(__m128i, codes)));
#elif SIMD_WIDTH == 8 && defined(__AVX2__)
  return __builtin_bit_cast(Int, _mm256_cvtepi8_epi32(_mm_loadu_si64(&codes)));
#else
  return __builtin_convertvector(codes, Int);
#endif
}

inline Float load(const std::int8_t* from) { return __builtin_convertvector(load_codes(from), Float); }

// The first `count` elements, then zeros.
template <class T>
Float load(const T* from, std::int64_t count) {
  T elements[kWidth] = {};
  std::memcpy(elements, from, static_cast<std::size_t>(count) * sizeof(T));
  return load(elements);
}

// No infinity, no NaN.
inline Float load(const Float16* from) {
  Half halves;
  std::memcpy(&halves, from, sizeof halves);
  const Word bits = widen_bits(halves);
  const Float magnitude = as_float((bits & 0x7fffU) << 13) * 0x1p112F;  // the exponents' biases differ by so much
  return as_float(as_word(magnitude) | (bits & 0x8000U) << 16);
}

inline void store(float* to, Float value) { std::memcpy(to, &value, sizeof value); }

inline void store(BFloat16* to, Float value) {
#if defined(__AVX512BF16__)
  const __m256bh half = _mm512_cvtneps_pbh(__builtin_bit_cast(__m512, value));
#else
  const Word bits = as_word(value);
  const Word rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const Word chosen = bits << 1 > 0xff000000U ? Word{} + 0x7fc0U : rounded;  // NaN stays one
  const Half half = __builtin_convertvector(chosen, Half);
#endif
  std::memcpy(to, &half, sizeof half);
}

template <class T>
void store(T* to, Float value, std::int64_t count) {
  T elements[kWidth];
  store(elements, value);
  std::memcpy(to, elements, static_cast<std::size_t>(count) * sizeof(T));
}

// The low 8 bits of each.
inline void store_codes(std::int8_t* to, Int value) {
#if SIMD_WIDTH == 16 && defined(__AVX512F__)
  const Code codes =
      __builtin_bit_cast(Code, _mm512_maskz_cvtepi32_epi8(kAllLanes, __builtin_bit_cast(__m512i, value)));
#else
  const Code codes = __builtin_convertvector(value, Code);
#endif
  std::memcpy(to, &codes, sizeof codes);
}

// The sums of the two products of 16 bits with a sign that share a lane.
inline Int pair_products(Int a, Int b) {
#if SIMD_WIDTH == 16 && defined(__AVX512BW__)
  return __builtin_bit_cast(Int, _mm512_madd_epi16(__builtin_bit_cast(__m512i, a), __builtin_bit_cast(__m512i, b)));
#elif SIMD_WIDTH == 8 && defined(__AVX2__)
  return __builtin_bit_cast(Int, _mm256_madd_epi16(__builtin_bit_cast(__m256i, a), __builtin_bit_cast(__m256i, b)));
#else
  return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

// Lane i of the result is lane i ^ kDistance.
template <int kDistance, int... kLane>
Float swapped(Float value, std::integer_sequence<int, kLane...> /*lanes*/) {
  return __builtin_shufflevector(value, value, (kLane ^ kDistance)...);
}

template <int kDistance = kWidth / 2>
float sum(Float value) {
  value += swapped<kDistance>(value, std::make_integer_sequence<int, kWidth>{});
  if constexpr (kDistance > 1) return sum<kDistance / 2>(value);
  return value[0];
}

inline std::int32_t sum(Int value) {
  std::int32_t total = 0;
  for (int i = 0; i < kWidth; ++i) total += value[i];
  return total;
}

inline Float greater(Float a, Float b) { return a > b ? a : b; }

template <int kDistance = kWidth / 2>
float maximum(Float value) {
  value = greater(value, swapped<kDistance>(value, std::make_integer_sequence<int, kWidth>{}));
  if constexpr (kDistance > 1) return maximum<kDistance / 2>(value);
  return value[0];
}

// One step of Eklundh's transposition: exchange the off-diagonal squares of kSize of two rows.
template <int kSize, int... kLane>
void exchange(Float& upper, Float& lower, std::integer_sequence<int, kLane...> /*lanes*/) {
  const Float first = __builtin_shufflevector(upper, lower, ((kLane & kSize) != 0 ? kWidth + kLane - kSize : kLane)...);
  lower = __builtin_shufflevector(upper, lower, ((kLane & kSize) != 0 ? kWidth + kLane : kLane + kSize)...);
  upper = first;
}

template <int kSize = kWidth / 2>
void transpose(Float (&rows)[kWidth]) {
#pragma GCC unroll 16
  for (int row = 0; row < kWidth; ++row) {
    if ((row & kSize) == 0) {
      exchange<kSize>(rows[row], rows[row + kSize], std::make_integer_sequence<int, kWidth>{});
    }
  }
  if constexpr (kSize > 1) transpose<kSize / 2>(rows);
}

// e^x with a relative error below 2e-7; 0 below -87. The polynomial is Cephes's (expf).
inline Float exponential(Float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves an integer in the low bits
  const Float bounded = greater(x < 88.0F ? x : splat(88.0F), splat(-87.0F));
  const Float shifted = bounded * 1.44269504088896341F + kRound;
  const Float whole = shifted - kRound;
  const Float rest = bounded - whole * 0.693359375F + whole * 2.12194440e-4F;
  Float value = rest * 1.9875691500e-4F + 1.3981999507e-3F;
  value = value * rest + 8.3334519073e-3F;
  value = value * rest + 4.1665795894e-2F;
  value = value * rest + 1.6666665459e-1F;
  value = value * rest + 5.0000001201e-1F;
  value = value * rest * rest + rest + 1.0F;
  const Float power = as_float((as_word(shifted) << 23) + 0x3f800000U);
  return x < -87.0F ? Float{} : value * power;
}

// tanh x with a relative error below 3e-7. The polynomial, for x up to 0.625, has the least greatest relative error.
inline Float hyperbolic_tangent(Float x) {
  const Float square = x * x;
  Float value = square * -5.70526e-3F + 2.063932e-2F;
  value = value * square - 5.373979e-2F;
  value = value * square + 0.13331443F;
  value = value * square - 0.33333282F;
  const Float near = value * square * x + x;
  const Float far = 1.0F - 2.0F / (exponential(x + x) + 1.0F);
  return square < 0.390625F ? near : far;
}

// e^x of x up to 0 with a relative error below 1e-5, for what is rounded to bfloat16; 0 below -87. The polynomial is
// the best one for 2^x between -1/2 and 1/2.
inline Float rough_exponential(Float x) {
  constexpr float kRound = 12582912.0F;  // as above
  const Float power = x * 1.44269504088896341F;
  const Float shifted = power + kRound;
  const Float rest = power - (shifted - kRound);
  Float value = rest * 9.5700966e-3F + 5.5917859e-2F;
  value = value * rest + 2.4024744e-1F;
  value = value * rest + 6.9312179e-1F;
  value = value * rest + 9.9999928e-1F;
  const Float scaled = as_float(as_word(value) + (as_word(shifted) << 23));
  return x < -87.0F ? Float{} : scaled;
}

inline float widened(float value) { return value; }
inline float widened(BFloat16 value) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16); }

// How elements of T enter a matrix product: `kValues` of them share a lane of 32 bits.
template <class T>
struct Product {
  static constexpr int kValues = 1;
  template <class Stored>
  static Float lanes(const Stored* from) {
    return load(from);
  }
  template <class Stored>
  static Float lanes(const Stored* from, std::int64_t count) {
    return load(from, count);
  }
  static Float add(Float sum, Float a, Float b) { return sum + a * b; }
};

#if defined(__AVX512BF16__)
template <>
struct Product<BFloat16> {
  static constexpr int kValues = 2;
  static Float lanes(const BFloat16* from) {
    Float pairs;
    std::memcpy(&pairs, from, sizeof pairs);
    return pairs;
  }
  static Float lanes(const std::int8_t* from) {
    const auto low = __builtin_bit_cast(__m512, load(from));
    const auto high = __builtin_bit_cast(__m512, load(from + kWidth));
    return __builtin_bit_cast(Float, _mm512_cvtne2ps_pbh(high, low));
  }
  template <class Stored>
  static Float lanes(const Stored* from, std::int64_t count) {
    Stored elements[2 * kWidth] = {};
    std::memcpy(elements, from, static_cast<std::size_t>(count) * sizeof(Stored));
    return lanes(elements);
  }
  static Float add(Float sum, Float a, Float b) {
    return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, b));
  }
};
#endif

}  // namespace
}  // namespace unified
