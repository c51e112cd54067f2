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
  for (int64_t i = 0; i < width / 2; ++i) {
    const auto cu = static_cast<int16_t>(u[i] * 8 - 1024);
    const auto cv = static_cast<int16_t>(v[i] * 8 - 1024);
    red[2 * i] = red[2 * i + 1] = high_product(cv, c.red_v);
    green[2 * i] = green[2 * i + 1] = static_cast<int16_t>(high_product(cu, c.green_u) + high_product(cv, c.green_v));
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
  for (int64_t i = 0; i < width / 2; ++i) {
    const auto r = static_cast<int16_t>(red_base + ((v[i] * c.step_red_v) >> 16));
    const auto g = static_cast<int16_t>(green_base + ((u[i] * c.step_green_u) >> 16) + ((v[i] * c.step_green_v) >> 16));
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

// A damaged picture has samples of more bits than its format, which wrap around, too.
SIMD_FN inline uint32_t product(int a, int b) { return static_cast<uint32_t>(a) * static_cast<uint32_t>(b); }

template <class T>
SIMD_FN inline void full_row(const T* __restrict y, const T* __restrict u, const T* __restrict v, int extra_bits,
                             int width, const YuvCoefficients& k, Planes out) {
  const YuvCoefficients c = k;
  const int shift = 9 - extra_bits;
  uint8_t* __restrict r = out.red;
  uint8_t* __restrict g = out.green;
  uint8_t* __restrict b = out.blue;
  for (int x = 0; x < width; ++x) {
    const uint32_t luma = product((y[x] << shift) - c.fine_luma_offset, c.luma) + (1U << 21);
    const int cu = (u[x] << shift) - (128 << 9);
    const int cv = (v[x] << shift) - (128 << 9);
    r[x] = clip_full(luma + product(cv, c.red_v));
    g[x] = clip_full(luma + product(cv, c.green_v) + product(cu, c.green_u));
    b[x] = clip_full(luma + product(cu, c.blue_u));
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

SIMD_FN inline uint8_t weighted_sum(const uint8_t* __restrict pixels, const int16_t* __restrict weights, int taps,
                                    int shift) {
  int32_t sum = 1 << (shift - 1);
  for (int j = 0; j < taps; ++j) sum += static_cast<int16_t>(pixels[j]) * weights[j];
  return clip(sum >> shift);
}

SIMD_FN inline void narrow1(ConstPlanes in, const FilterView& filter, int x, Planes out) {
  const int16_t* weights = filter.weights + static_cast<int64_t>(x) * filter.stride;
  const int first = filter.first[x];
  *out.red = weighted_sum(in.red + first, weights, filter.stride, filter.shift);
  *out.green = weighted_sum(in.green + first, weights, filter.stride, filter.shift);
  *out.blue = weighted_sum(in.blue + first, weights, filter.stride, filter.shift);
}

#if SIMD_BYTES >= 32
using Sums = __m256i;
SIMD_FN inline Sums no_sums() { return _mm256_setzero_si256(); }

SIMD_FN inline Sums load_weights(const int16_t* weights) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
}

// Adds sixteen products to eight sums.
SIMD_FN inline Sums add_products(Sums sums, const uint8_t* pixels, Sums weights) {
  const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels)));
#if SIMD_BYTES == 64
  return _mm256_dpwssd_epi32(sums, wide, weights);
#else
  return _mm256_add_epi32(sums, _mm256_madd_epi16(wide, weights));
#endif
}

SIMD_FN inline __m128i totals(Sums a, Sums b, Sums c, Sums d) {
  const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}
#elif SIMD_BYTES == 16
struct Sums {
  __m128i low;
  __m128i high;
};
SIMD_FN inline Sums no_sums() { return {_mm_setzero_si128(), _mm_setzero_si128()}; }

SIMD_FN inline Sums load_weights(const int16_t* weights) { return {load(weights), load(weights + 8)}; }

SIMD_FN inline Sums add_products(Sums sums, const uint8_t* pixels, Sums weights) {
  const __m128i bytes = load(pixels);
  const __m128i zero = _mm_setzero_si128();
  return {_mm_add_epi32(sums.low, _mm_madd_epi16(_mm_unpacklo_epi8(bytes, zero), weights.low)),
          _mm_add_epi32(sums.high, _mm_madd_epi16(_mm_unpackhi_epi8(bytes, zero), weights.high))};
}

SIMD_FN inline __m128i totals(Sums a, Sums b, Sums c, Sums d) {
  const auto both = [](Sums s) { return _mm_add_epi32(s.low, s.high); };
  const __m128i ab = _mm_add_epi32(_mm_unpacklo_epi32(both(a), both(b)), _mm_unpackhi_epi32(both(a), both(b)));
  const __m128i cd = _mm_add_epi32(_mm_unpacklo_epi32(both(c), both(d)), _mm_unpackhi_epi32(both(c), both(d)));
  return _mm_add_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd));
}
#endif

#if SIMD_BYTES > 0
// Four outputs, in all of the planes, from windows that begin at `first` and have `taps` weights each.
SIMD_FN inline void narrow4(ConstPlanes in, const int32_t* first, const int16_t* weights, int taps, int shift,
                            uint8_t* red, uint8_t* green, uint8_t* blue) {
  Sums r0 = no_sums(), r1 = r0, r2 = r0, r3 = r0;
  Sums g0 = r0, g1 = r0, g2 = r0, g3 = r0;
  Sums b0 = r0, b1 = r0, b2 = r0, b3 = r0;
  const int64_t x0 = first[0];
  const int64_t x1 = first[1];
  const int64_t x2 = first[2];
  const int64_t x3 = first[3];
  for (int64_t j = 0; j < taps; j += 16) {
    const Sums w0 = load_weights(weights + j);
    r0 = add_products(r0, in.red + x0 + j, w0);
    g0 = add_products(g0, in.green + x0 + j, w0);
    b0 = add_products(b0, in.blue + x0 + j, w0);
    const Sums w1 = load_weights(weights + taps + j);
    r1 = add_products(r1, in.red + x1 + j, w1);
    g1 = add_products(g1, in.green + x1 + j, w1);
    b1 = add_products(b1, in.blue + x1 + j, w1);
    const Sums w2 = load_weights(weights + 2 * int64_t{taps} + j);
    r2 = add_products(r2, in.red + x2 + j, w2);
    g2 = add_products(g2, in.green + x2 + j, w2);
    b2 = add_products(b2, in.blue + x2 + j, w2);
    const Sums w3 = load_weights(weights + 3 * int64_t{taps} + j);
    r3 = add_products(r3, in.red + x3 + j, w3);
    g3 = add_products(g3, in.green + x3 + j, w3);
    b3 = add_products(b3, in.blue + x3 + j, w3);
  }
  const __m128i half = _mm_set1_epi32(1 << (shift - 1));
  const __m128i count = _mm_cvtsi32_si128(shift);
  const __m128i r = _mm_sra_epi32(_mm_add_epi32(totals(r0, r1, r2, r3), half), count);
  const __m128i g = _mm_sra_epi32(_mm_add_epi32(totals(g0, g1, g2, g3), half), count);
  const __m128i b = _mm_sra_epi32(_mm_add_epi32(totals(b0, b1, b2, b3), half), count);
  const __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(r, g), _mm_packs_epi32(b, b));
  const int red4 = _mm_cvtsi128_si32(bytes);
  const int green4 = _mm_cvtsi128_si32(_mm_srli_si128(bytes, 4));
  const int blue4 = _mm_cvtsi128_si32(_mm_srli_si128(bytes, 8));
  __builtin_memcpy(red, &red4, 4);
  __builtin_memcpy(green, &green4, 4);
  __builtin_memcpy(blue, &blue4, 4);
}

SIMD_FN void narrow(ConstPlanes in, int offset, const FilterView& filter, int begin, int end, Planes out) {
  const ConstPlanes from = in + -int64_t{offset};
  const int taps = filter.stride;
  const int16_t* const weights = filter.weights;
  int x = begin;
  for (; x + 4 <= end; x += 4) {
    const int64_t to = x - begin;
    narrow4(from, filter.first + x, weights + int64_t{x} * taps, taps, filter.shift, out.red + to, out.green + to,
            out.blue + to);
  }
  for (; x < end; ++x) narrow1(from, filter, x, out + (x - begin));
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
SIMD_FN void narrow(ConstPlanes in, int offset, const FilterView& filter, int begin, int end, Planes out) {
  for (int x = begin; x < end; ++x) narrow1(in + -int64_t{offset}, filter, x, out + (x - begin));
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
  const auto mask = [](int part)
                        SIMD_LAMBDA { return _mm_load_si128(reinterpret_cast<const __m128i*>(kIndex.part[part])); };
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
  const auto mask = [](int c)
                        SIMD_LAMBDA { return _mm_load_si128(reinterpret_cast<const __m128i*>(kIndex.channel[c])); };
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

SIMD_FN void join(ConstPlanes in, int width, uint8_t* __restrict rgb) {
  int x = 0;
#if SIMD_BYTES >= 32
  for (; x + 16 <= width; x += 16, rgb += 48) {
    const __m128i r = load16(in.red + x);
    const __m128i g = load16(in.green + x);
    const __m128i b = load16(in.blue + x);
    store16(rgb, scatter3<0>(r, g, b));
    store16(rgb + 16, scatter3<1>(r, g, b));
    store16(rgb + 32, scatter3<2>(r, g, b));
  }
#endif
  for (; x < width; ++x, rgb += 3) {
    rgb[0] = in.red[x];
    rgb[1] = in.green[x];
    rgb[2] = in.blue[x];
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
    for (int64_t i = 0; i < 8; ++i) {
      mixed[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
      mixed[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
    }
    for (int i = 0; i < 16; ++i) rows[i] = mixed[i];
  }
  for (int i = 0; i < 16; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * out_stride), rows[i]);
  }
#else
  for (int64_t x = 0; x < 16; ++x) {
    for (int64_t y = 0; y < 16; ++y) out[x * out_stride + y] = in[y * in_stride + x];
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
