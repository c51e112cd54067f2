// The kernels for one instruction set. Included once for each, with
//   SIMD_FN         the attribute that selects it,
//   SIMD_BYTES      its vector size on x86, 0 elsewhere: then the compiler vectorises the plain loops.

constexpr int kBlock = 64;

SIMD_FN inline uint8_t clip(int value) { return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value); }

SIMD_FN inline int16_t high_product(int16_t a, int16_t b) { return static_cast<int16_t>((a * b) >> 16); }

// ---- YUV to RGB

SIMD_FN inline void direct_block(const uint8_t* __restrict y, const uint8_t* __restrict u, const uint8_t* __restrict v,
                                 int width, const YuvCoefficients& k, Planes out) {
  alignas(64) int16_t red[kBlock];
  alignas(64) int16_t green[kBlock];
  alignas(64) int16_t blue[kBlock];
  const YuvCoefficients c = k;
  for (int i = 0; i < width / 2; ++i) {
    const auto cu = static_cast<int16_t>(u[i] * 8 - 1024);
    const auto cv = static_cast<int16_t>(v[i] * 8 - 1024);
    red[2 * i] = red[2 * i + 1] = high_product(cv, c.red_v);
    green[2 * i] = green[2 * i + 1] =
        static_cast<int16_t>(high_product(cu, c.green_u) + high_product(cv, c.green_v));
    blue[2 * i] = blue[2 * i + 1] = high_product(cu, c.blue_u);
  }
  uint8_t* __restrict r = out.red;
  uint8_t* __restrict g = out.green;
  uint8_t* __restrict b = out.blue;
  for (int x = 0; x < width; ++x) {
    const int16_t luma = high_product(static_cast<int16_t>(y[x] * 8 - c.luma_offset), c.luma);
    r[x] = clip(static_cast<int16_t>(luma + red[x]));
    g[x] = clip(static_cast<int16_t>(luma + green[x]));
    b[x] = clip(static_cast<int16_t>(luma + blue[x]));
  }
}

SIMD_FN void direct(const uint8_t* y, const uint8_t* u, const uint8_t* v, int width, const YuvCoefficients& k,
                    Planes out) {
  int x = 0;
  for (; x + kBlock <= width; x += kBlock) direct_block(y + x, u + x / 2, v + x / 2, kBlock, k, out + x);
  if (x < width) direct_block(y + x, u + x / 2, v + x / 2, width - x, k, out + x);
}

// Rounds idx * (65536 + step) / 65536 in 16-bit lanes.
SIMD_FN inline uint8_t at_step(int16_t index, int16_t step, int16_t floor) {
  const auto low = static_cast<uint16_t>(static_cast<uint16_t>(index) * static_cast<uint16_t>(step));
  const auto value = static_cast<int16_t>(index - floor + high_product(index, step) + (low >> 15));
  return clip(value);
}

template <class T>
SIMD_FN inline void stepped_block(const T* __restrict y, int extra_bits, const uint8_t* __restrict u,
                                  const uint8_t* __restrict v, int width, const YuvCoefficients& k, Planes out) {
  alignas(64) int16_t red[kBlock];
  alignas(64) int16_t green[kBlock];
  alignas(64) int16_t blue[kBlock];
  const YuvCoefficients c = k;
  const int red_base = c.first_step - (c.step_red_v >> 9);
  const int green_base = c.first_step - (c.step_green_u >> 9) - (c.step_green_v >> 9);
  const int blue_base = c.first_step - (c.step_blue_u >> 9);
  for (int i = 0; i < width / 2; ++i) {
    const auto r = static_cast<int16_t>(red_base + ((v[i] * c.step_red_v) >> 16));
    const auto g =
        static_cast<int16_t>(green_base + ((u[i] * c.step_green_u) >> 16) + ((v[i] * c.step_green_v) >> 16));
    const auto b = static_cast<int16_t>(blue_base + ((u[i] * c.step_blue_u) >> 16));
    red[2 * i] = red[2 * i + 1] = r;
    green[2 * i] = green[2 * i + 1] = g;
    blue[2 * i] = blue[2 * i + 1] = b;
  }
  const auto half = static_cast<T>(extra_bits == 0 ? 0 : 1 << (extra_bits - 1));
  uint8_t* __restrict r = out.red;
  uint8_t* __restrict g = out.green;
  uint8_t* __restrict b = out.blue;
  for (int x = 0; x < width; ++x) {
    const auto luma = static_cast<int16_t>(static_cast<uint16_t>(y[x] + half) >> extra_bits);
    r[x] = at_step(static_cast<int16_t>(luma + red[x]), c.step, c.floor);
    g[x] = at_step(static_cast<int16_t>(luma + green[x]), c.step, c.floor);
    b[x] = at_step(static_cast<int16_t>(luma + blue[x]), c.step, c.floor);
  }
}

SIMD_FN void stepped8(const uint8_t* y, const uint8_t* u, const uint8_t* v, int width, const YuvCoefficients& k,
                      Planes out) {
  int x = 0;
  for (; x + kBlock <= width; x += kBlock) stepped_block(y + x, 0, u + x / 2, v + x / 2, kBlock, k, out + x);
  if (x < width) stepped_block(y + x, 0, u + x / 2, v + x / 2, width - x, k, out + x);
}

SIMD_FN void stepped16(const uint16_t* y, int extra_bits, const uint8_t* u, const uint8_t* v, int width,
                       const YuvCoefficients& k, Planes out) {
  int x = 0;
  for (; x + kBlock <= width; x += kBlock) stepped_block(y + x, extra_bits, u + x / 2, v + x / 2, kBlock, k, out + x);
  if (x < width) stepped_block(y + x, extra_bits, u + x / 2, v + x / 2, width - x, k, out + x);
}

SIMD_FN void mix(const uint16_t* const rows[4], const int16_t weights[4], int extra_bits, int width,
                 uint8_t* __restrict out) {
  const uint16_t* __restrict a = rows[0];
  const uint16_t* __restrict b = rows[1];
  const uint16_t* __restrict c = rows[2];
  const uint16_t* __restrict d = rows[3];
  const int w0 = weights[0];
  const int w1 = weights[1];
  const int w2 = weights[2];
  const int w3 = weights[3];
  const int shift = 12 + extra_bits;
  for (int x = 0; x < width; ++x) {
    out[x] = clip((a[x] * w0 + b[x] * w1 + c[x] * w2 + d[x] * w3 + (1 << (shift - 1))) >> shift);
  }
}

// 30 bits, wrapping around where libswscale's do.
SIMD_FN inline uint8_t clip_full(uint32_t value) {
  const auto wrapped = static_cast<int32_t>(value);
  return static_cast<uint8_t>((wrapped < 0 ? 0 : wrapped > 0x3fffffff ? 0x3fffffff : wrapped) >> 22);
}

template <class T>
SIMD_FN inline void full_row(const T* __restrict y, const T* __restrict u, const T* __restrict v, int extra_bits,
                             int width, const YuvCoefficients& k, Planes out) {
  const YuvCoefficients c = k;
  const int shift = 9 - extra_bits;
  uint8_t* __restrict r = out.red;
  uint8_t* __restrict g = out.green;
  uint8_t* __restrict b = out.blue;
  for (int x = 0; x < width; ++x) {
    const int luma = ((y[x] << shift) - c.fine_luma_offset) * c.luma + (1 << 21);
    const int cu = (u[x] << shift) - (128 << 9);
    const int cv = (v[x] << shift) - (128 << 9);
    r[x] = clip_full(static_cast<uint32_t>(luma) + static_cast<uint32_t>(cv * c.red_v));
    g[x] = clip_full(static_cast<uint32_t>(luma) + static_cast<uint32_t>(cv * c.green_v) +
                     static_cast<uint32_t>(cu * c.green_u));
    b[x] = clip_full(static_cast<uint32_t>(luma) + static_cast<uint32_t>(cu * c.blue_u));
  }
}

SIMD_FN void full8(const uint8_t* y, const uint8_t* u, const uint8_t* v, int width, const YuvCoefficients& k,
                   Planes out) {
  full_row(y, u, v, 0, width, k, out);
}

SIMD_FN void full16(const uint16_t* y, const uint16_t* u, const uint16_t* v, int extra_bits, int width,
                    const YuvCoefficients& k, Planes out) {
  full_row(y, u, v, extra_bits, width, k, out);
}

// ---- Resize

#if SIMD_BYTES == 64
using Vector = __m512i;
SIMD_FN inline Vector load(const void* p) { return _mm512_loadu_si512(p); }
SIMD_FN inline void store(void* p, Vector v) { _mm512_storeu_si512(p, v); }
SIMD_FN inline Vector set32(int v) { return _mm512_set1_epi32(v); }
SIMD_FN inline Vector add32(Vector a, Vector b) { return _mm512_add_epi32(a, b); }
SIMD_FN inline Vector multiply_pairs(Vector a, Vector b) { return _mm512_madd_epi16(a, b); }
SIMD_FN inline Vector low_bytes(Vector a, Vector b) { return _mm512_unpacklo_epi8(a, b); }
SIMD_FN inline Vector high_bytes(Vector a, Vector b) { return _mm512_unpackhi_epi8(a, b); }
SIMD_FN inline Vector shift_right32(Vector a, int n) { return _mm512_sra_epi32(a, _mm_cvtsi32_si128(n)); }
SIMD_FN inline Vector narrow32(Vector a, Vector b) { return _mm512_packs_epi32(a, b); }
SIMD_FN inline Vector narrow16(Vector a, Vector b) { return _mm512_packus_epi16(a, b); }
#elif SIMD_BYTES == 32
using Vector = __m256i;
SIMD_FN inline Vector load(const void* p) { return _mm256_loadu_si256(static_cast<const Vector*>(p)); }
SIMD_FN inline void store(void* p, Vector v) { _mm256_storeu_si256(static_cast<Vector*>(p), v); }
SIMD_FN inline Vector set32(int v) { return _mm256_set1_epi32(v); }
SIMD_FN inline Vector add32(Vector a, Vector b) { return _mm256_add_epi32(a, b); }
SIMD_FN inline Vector multiply_pairs(Vector a, Vector b) { return _mm256_madd_epi16(a, b); }
SIMD_FN inline Vector low_bytes(Vector a, Vector b) { return _mm256_unpacklo_epi8(a, b); }
SIMD_FN inline Vector high_bytes(Vector a, Vector b) { return _mm256_unpackhi_epi8(a, b); }
SIMD_FN inline Vector shift_right32(Vector a, int n) { return _mm256_sra_epi32(a, _mm_cvtsi32_si128(n)); }
SIMD_FN inline Vector narrow32(Vector a, Vector b) { return _mm256_packs_epi32(a, b); }
SIMD_FN inline Vector narrow16(Vector a, Vector b) { return _mm256_packus_epi16(a, b); }
#elif SIMD_BYTES == 16
using Vector = __m128i;
SIMD_FN inline Vector load(const void* p) { return _mm_loadu_si128(static_cast<const Vector*>(p)); }
SIMD_FN inline void store(void* p, Vector v) { _mm_storeu_si128(static_cast<Vector*>(p), v); }
SIMD_FN inline Vector set32(int v) { return _mm_set1_epi32(v); }
SIMD_FN inline Vector add32(Vector a, Vector b) { return _mm_add_epi32(a, b); }
SIMD_FN inline Vector multiply_pairs(Vector a, Vector b) { return _mm_madd_epi16(a, b); }
SIMD_FN inline Vector low_bytes(Vector a, Vector b) { return _mm_unpacklo_epi8(a, b); }
SIMD_FN inline Vector high_bytes(Vector a, Vector b) { return _mm_unpackhi_epi8(a, b); }
SIMD_FN inline Vector shift_right32(Vector a, int n) { return _mm_sra_epi32(a, _mm_cvtsi32_si128(n)); }
SIMD_FN inline Vector narrow32(Vector a, Vector b) { return _mm_packs_epi32(a, b); }
SIMD_FN inline Vector narrow16(Vector a, Vector b) { return _mm_packus_epi16(a, b); }
#endif

#if SIMD_BYTES >= 32
// Sixteen products, added up to eight.
SIMD_FN inline __m256i products16(const uint8_t* pixels, const int16_t* weights) {
  const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels)));
  return _mm256_madd_epi16(wide, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)));
}

SIMD_FN inline __m256i dot(const uint8_t* pixels, const int16_t* weights, int taps) {
  __m256i sum = products16(pixels, weights);
#if SIMD_BYTES == 64
  int j = taps % 32 != 0 ? 16 : 0;
  __m512i wide_sum = j != 0 ? _mm512_zextsi256_si512(sum) : _mm512_setzero_si512();
  for (; j < taps; j += 32) {
    const __m512i wide = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(pixels + j)));
    wide_sum = _mm512_add_epi32(wide_sum, _mm512_madd_epi16(wide, _mm512_loadu_si512(weights + j)));
  }
  sum = _mm256_add_epi32(_mm512_castsi512_si256(wide_sum), _mm512_extracti64x4_epi64(wide_sum, 1));
#else
  for (int j = 16; j < taps; j += 16) sum = _mm256_add_epi32(sum, products16(pixels + j, weights + j));
#endif
  return sum;
}

SIMD_FN inline __m128i total4(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}
#elif SIMD_BYTES == 16
SIMD_FN inline __m128i dot(const uint8_t* pixels, const int16_t* weights, int taps) {
  const __m128i zero = _mm_setzero_si128();
  __m128i sum = zero;
  for (int j = 0; j < taps; j += 16) {
    const __m128i bytes = load(pixels + j);
    sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_unpacklo_epi8(bytes, zero), load(weights + j)));
    sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_unpackhi_epi8(bytes, zero), load(weights + j + 8)));
  }
  return sum;
}

SIMD_FN inline __m128i total4(__m128i a, __m128i b, __m128i c, __m128i d) {
  const __m128i ab = _mm_add_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
  const __m128i cd = _mm_add_epi32(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
  return _mm_add_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd));
}
#endif

#if SIMD_BYTES > 0
SIMD_FN void narrow(const uint8_t* in, int offset, const FilterView& filter, int begin, int end, uint8_t* out) {
  const __m128i half = _mm_set1_epi32(1 << (filter.shift - 1));
  const __m128i shift = _mm_cvtsi32_si128(filter.shift);
  const uint8_t* pixels = in - offset;
  const int32_t* first = filter.first;
  const int taps = filter.stride;
  const int16_t* weights = filter.weights + static_cast<int64_t>(begin) * taps;
  for (int x = begin; x < end; x += 4, weights += 4 * static_cast<int64_t>(taps), out += 4) {
    // The last outputs are made again rather than some behind the end.
    const int count = end - x < 4 ? end - x : 4;
    const int last = count - 1;
    const auto at = [&](int i) SIMD_LAMBDA {
      const int k = i < last ? i : last;
      return dot(pixels + first[x + k], weights + static_cast<int64_t>(k) * taps, taps);
    };
    const __m128i sums = _mm_sra_epi32(_mm_add_epi32(total4(at(0), at(1), at(2), at(3)), half), shift);
    const __m128i words = _mm_packs_epi32(sums, sums);
    const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    if (count == 4) {
      __builtin_memcpy(out, &bytes, 4);
    } else {
      __builtin_memcpy(out, &bytes, static_cast<size_t>(count));
    }
  }
}

SIMD_FN inline Vector blend_block(const uint8_t* const* rows, const int16_t* weights, int taps, int shift, int x) {
  const Vector zero = set32(0);
  Vector a = set32(1 << (shift - 1));
  Vector b = a;
  Vector c = a;
  Vector d = a;
  for (int j = 0; j < taps; j += 2) {
    int pair = 0;
    __builtin_memcpy(&pair, weights + j, 4);
    const Vector w = set32(pair);
    const Vector one = load(rows[j] + x);
    const Vector two = load(rows[j + 1] + x);
    const Vector low = low_bytes(one, two);
    const Vector high = high_bytes(one, two);
    a = add32(a, multiply_pairs(low_bytes(low, zero), w));
    b = add32(b, multiply_pairs(high_bytes(low, zero), w));
    c = add32(c, multiply_pairs(low_bytes(high, zero), w));
    d = add32(d, multiply_pairs(high_bytes(high, zero), w));
  }
  return narrow16(narrow32(shift_right32(a, shift), shift_right32(b, shift)),
                  narrow32(shift_right32(c, shift), shift_right32(d, shift)));
}

SIMD_FN void blend(const uint8_t* const* rows, const int16_t* weights, int taps, int shift, int width, uint8_t* out) {
  int x = 0;
  for (; x + SIMD_BYTES <= width; x += SIMD_BYTES) store(out + x, blend_block(rows, weights, taps, shift, x));
  if (x == width) return;
  alignas(64) uint8_t rest[SIMD_BYTES];
  store(rest, blend_block(rows, weights, taps, shift, x));
  __builtin_memcpy(out + x, rest, static_cast<size_t>(width - x));
}
#else
SIMD_FN void narrow(const uint8_t* in, int offset, const FilterView& filter, int begin, int end, uint8_t* out) {
  for (int x = begin; x < end; ++x) {
    const int16_t* __restrict weights = filter.weights + static_cast<int64_t>(x) * filter.stride;
    const uint8_t* __restrict pixels = in + (filter.first[x] - offset);
    int32_t sum = 0;
    for (int j = 0; j < filter.stride; ++j) sum += static_cast<int16_t>(pixels[j]) * weights[j];
    out[x - begin] = clip((sum + (1 << (filter.shift - 1))) >> filter.shift);
  }
}

SIMD_FN void blend(const uint8_t* const* rows, const int16_t* weights, int taps, int shift, int width,
                   uint8_t* __restrict out) {
  for (int x = 0; x < width; x += 16) {
    int32_t sums[16];
    for (int32_t& sum : sums) sum = 1 << (shift - 1);
    for (int j = 0; j < taps; ++j) {
      const uint8_t* __restrict row = rows[j] + x;
      for (int i = 0; i < 16; ++i) sums[i] += static_cast<int16_t>(row[i]) * weights[j];
    }
    const int count = width - x < 16 ? width - x : 16;
    for (int i = 0; i < count; ++i) out[x + i] = clip(sums[i] >> shift);
  }
}
#endif

// ---- Layout

#if SIMD_BYTES >= 32
// Byte i of the result is byte index[i] of 48, the indices from `from` on.
template <int c>
SIMD_FN inline __m128i gather3(__m128i a, __m128i b, __m128i d) {
  alignas(16) static constexpr auto kIndex = [] {
    struct {
      int8_t part[3][16];
    } index{};
    for (int part = 0; part < 3; ++part) {
      for (int i = 0; i < 16; ++i) {
        const int from = 3 * i + c - 16 * part;
        index.part[part][i] = static_cast<int8_t>(from >= 0 && from < 16 ? from : -128);
      }
    }
    return index;
  }();
  const auto mask = [](int part) SIMD_LAMBDA {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(kIndex.part[part]));
  };
  return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, mask(0)), _mm_shuffle_epi8(b, mask(1))),
                      _mm_shuffle_epi8(d, mask(2)));
}

template <int part>
SIMD_FN inline __m128i scatter3(__m128i r, __m128i g, __m128i b) {
  alignas(16) static constexpr auto kIndex = [] {
    struct {
      int8_t channel[3][16];
    } index{};
    for (int c = 0; c < 3; ++c) {
      for (int i = 0; i < 16; ++i) {
        const int to = 16 * part + i;
        index.channel[c][i] = static_cast<int8_t>(to % 3 == c ? to / 3 : -128);
      }
    }
    return index;
  }();
  const auto mask = [](int c) SIMD_LAMBDA {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(kIndex.channel[c]));
  };
  return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(r, mask(0)), _mm_shuffle_epi8(g, mask(1))),
                      _mm_shuffle_epi8(b, mask(2)));
}

SIMD_FN inline __m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
SIMD_FN inline void store16(uint8_t* p, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }
#endif

SIMD_FN void split(const uint8_t* rgb, int width, Planes out) {
  int x = 0;
#if SIMD_BYTES >= 32
  for (; x + 16 <= width; x += 16, rgb += 48) {
    const __m128i a = load16(rgb);
    const __m128i b = load16(rgb + 16);
    const __m128i c = load16(rgb + 32);
    store16(out.red + x, gather3<0>(a, b, c));
    store16(out.green + x, gather3<1>(a, b, c));
    store16(out.blue + x, gather3<2>(a, b, c));
  }
#endif
  uint8_t* __restrict r = out.red;
  uint8_t* __restrict g = out.green;
  uint8_t* __restrict b = out.blue;
  for (; x < width; ++x, rgb += 3) {
    r[x] = rgb[0];
    g[x] = rgb[1];
    b[x] = rgb[2];
  }
}

SIMD_FN void join(const uint8_t* red, const uint8_t* green, const uint8_t* blue, int width, uint8_t* __restrict rgb) {
  int x = 0;
#if SIMD_BYTES >= 32
  for (; x + 16 <= width; x += 16, rgb += 48) {
    const __m128i r = load16(red + x);
    const __m128i g = load16(green + x);
    const __m128i b = load16(blue + x);
    store16(rgb, scatter3<0>(r, g, b));
    store16(rgb + 16, scatter3<1>(r, g, b));
    store16(rgb + 32, scatter3<2>(r, g, b));
  }
#endif
  for (; x < width; ++x, rgb += 3) {
    rgb[0] = red[x];
    rgb[1] = green[x];
    rgb[2] = blue[x];
  }
}

SIMD_FN void transpose(const uint8_t* in, int64_t in_stride, uint8_t* out, int64_t out_stride) {
#if SIMD_BYTES > 0
  __m128i rows[16];
  __m128i mixed[16];
  for (int i = 0; i < 16; ++i) {
    rows[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i * in_stride));
  }
  // Interleaving row i with row i + 8, four times over, is a transposition.
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < 8; ++i) {
      mixed[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
      mixed[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
    }
    for (int i = 0; i < 16; ++i) rows[i] = mixed[i];
  }
  for (int i = 0; i < 16; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * out_stride), rows[i]);
  }
#else
  for (int x = 0; x < 16; ++x) {
    for (int y = 0; y < 16; ++y) out[x * out_stride + y] = in[y * in_stride + x];
  }
#endif
}

SIMD_FN void reverse(uint8_t* row, int width) {
  int left = 0;
  int right = width;
#if SIMD_BYTES >= 32
  const __m128i order = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (; right - left >= 32; left += 16, right -= 16) {
    const __m128i a = load16(row + left);
    const __m128i b = load16(row + right - 16);
    store16(row + left, _mm_shuffle_epi8(b, order));
    store16(row + right - 16, _mm_shuffle_epi8(a, order));
  }
#endif
  for (--right; left < right; ++left, --right) {
    const uint8_t swapped = row[left];
    row[left] = row[right];
    row[right] = swapped;
  }
}

constexpr Kernels kKernels{SIMD_NAME, direct, stepped8, stepped16, mix,       full8,  full16,
                           narrow,    blend,  split,    join,      transpose, reverse};
