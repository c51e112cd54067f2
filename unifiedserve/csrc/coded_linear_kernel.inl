// Matrix products of codes: sums of a group's products are exact integers, and meet zeros and scales once a group.
// Of up to 256 inputs they are below 2**24, so that floats hold them, and whole zeros leave them exact. Of a group of
// all inputs they are rounded once, everywhere in the same way.
namespace unified {
namespace {

constexpr int kCodedRows = SIMD_WIDTH == 16 ? 6 : 2;
// Sums of small groups meet scales so often that they are to stay in registers beside products: of fewer panels. Not
// where the rows are one tile, which waits for weights: of more panels more of them are on their way.
constexpr int kNarrowVectors = SIMD_WIDTH == 16 ? 2 : kWideVectors;
constexpr std::int64_t kSmallGroup = 128;
// Codes of so many inputs of a wide tile's panels stay in the second-level cache while they meet all rows.
constexpr std::int64_t kPartInputs = 4096;

// sum + the four products of codes without a sign and those with one that share a lane.
inline Int add_products(Int sum, Int unsigned_codes, Int codes) {
#if SIMD_WIDTH == 16 && defined(__AVX512VNNI__)
  return __builtin_bit_cast(
      Int, _mm512_dpbusd_epi32(__builtin_bit_cast(__m512i, sum), __builtin_bit_cast(__m512i, unsigned_codes),
                               __builtin_bit_cast(__m512i, codes)));
#elif SIMD_WIDTH == 8 && defined(__AVXVNNI__)
  return __builtin_bit_cast(
      Int, _mm256_dpbusd_avx_epi32(__builtin_bit_cast(__m256i, sum), __builtin_bit_cast(__m256i, unsigned_codes),
                                   __builtin_bit_cast(__m256i, codes)));
#else
  // As pairs of 16 bits: what adds up pairs of 8 bits would saturate.
  using Short __attribute__((vector_size(4 * SIMD_WIDTH))) = std::int16_t;
  const Int even = unsigned_codes & 0x00ff00ff;
  const Int odd = __builtin_bit_cast(Int, __builtin_bit_cast(Word, unsigned_codes) >> 8) & 0x00ff00ff;
  const auto shorts = __builtin_bit_cast(Short, codes);
  const Int x_even = __builtin_bit_cast(Int, static_cast<Short>(static_cast<Short>(shorts << 8) >> 8));
  const Int x_odd = __builtin_bit_cast(Int, static_cast<Short>(shorts >> 8));
  return sum + pair_products(even, x_even) + pair_products(odd, x_odd);
#endif
}

// As many vectors of codes as a lane of weights holds.
template <int kBits>
Int part_of(Int lane, int number) {
  if constexpr (kBits == 8) return lane;
  return (number == 0 ? lane : __builtin_bit_cast(Int, __builtin_bit_cast(Word, lane) >> 4)) & 0x0f0f0f0f;
}

// A group's products, of codes, as what they add to a sum.
struct GroupScales {
  Float zeros;
  Float scales;

  Float add(Float sum, Int products, float x_sum, float x_scale) const {
    const Float total = __builtin_convertvector(products, Float) - zeros * x_sum;
    return sum + total * (scales * x_scale);
  }

  // Of codes without their zeros: the same, because products less whole zeros are exact.
  Float add_whole(Float sum, Int products, float x_scale) const {
    return sum + __builtin_convertvector(products, Float) * (scales * x_scale);
  }
};

// What is left of a tile's type is its bias, so that the products are compiled once for all types.
struct CodedPart {
  const CodedRows& x;
  std::int64_t rows;
  const Float16* scales;     // of the first group and output
  Zeros zeros;               // likewise
  TileTarget<float> target;  // of the first row
  const TilePart& part;
  std::int64_t groups;       // of a row
  std::int64_t group_lanes;  // of weights
};

// Where a tile's codes of one group are.
struct GroupCodes {
  const float* weights;  // of the first panel
  std::int64_t panel_stride;
  std::int64_t lanes;
  const Float16* scales;
  std::int64_t table_stride;  // from a panel's scales to the next one's
  const Float16* zeros;       // null: they are part of x_sums
  std::int64_t zeros_stride;
  const std::int32_t* x;  // lanes of the first row
  std::int64_t x_stride;
  const float* x_scales;
  const float* x_sums;
  std::int64_t x_table_stride;
};

template <bool kOwnZeros, int kRows, int kVectors>
__attribute__((always_inline)) inline void add_products_of_group(const GroupCodes& at,
                                                                 const Int (&products)[kRows][kVectors],
                                                                 Float (&sums)[kRows][kVectors]) {
  // The hardware does not keep up with so many short tables beside the weights.
  constexpr int kPanels = kVectors / kPanelVectors;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const Float16* const scales = at.scales + v / kPanelVectors * at.table_stride + v % kPanelVectors * kWidth;
    __builtin_prefetch(scales + kPanels * at.table_stride);
    GroupScales group{splat(1.0F), load(scales)};
    if constexpr (kOwnZeros) {
      const Float16* const zeros = at.zeros + v / kPanelVectors * at.zeros_stride + v % kPanelVectors * kWidth;
      __builtin_prefetch(zeros + kPanels * at.zeros_stride);
      group.zeros = load(zeros);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t table = r * at.x_table_stride;
      sums[r][v] = group.add(sums[r][v], products[r][v], at.x_sums[table], at.x_scales[table]);
    }
  }
}

template <int kBits, int kRows, int kVectors, class Fetch>
__attribute__((always_inline)) inline void add_group(const GroupCodes& at, std::int64_t first_lane, const Fetch& fetch,
                                                     Float (&sums)[kRows][kVectors]) {
  constexpr int kParts = 8 / kBits;
  Int products[kRows][kVectors] = {};
  for (std::int64_t i = 0; i < at.lanes; ++i) {
    fetch.lane(first_lane + i);
    Int weights[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = __builtin_bit_cast(
          Int, load(at.weights + v / kPanelVectors * at.panel_stride + i * kLaneFloats + v % kPanelVectors * kWidth));
    }
#pragma GCC unroll 2
    for (int number = 0; number < kParts; ++number) {
      Int parts[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) parts[v] = part_of<kBits>(weights[v], number);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Int lane = Int{} + at.x[r * at.x_stride + i * kParts + number];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) products[r][v] = add_products(products[r][v], parts[v], lane);
      }
    }
  }
  at.zeros == nullptr ? add_products_of_group<false>(at, products, sums)
                      : add_products_of_group<true>(at, products, sums);
}

template <int kBits, int kRows, int kVectors, class Fetch>
void coded_tile(const CodedPart& work, std::int64_t row, const Fetch& fetch) {
  const CodedRows& x = work.x;
  const std::int64_t group = work.part.first / work.group_lanes;
  GroupCodes at{.weights = work.part.panels,
                .panel_stride = work.part.panel_stride,
                .lanes = work.group_lanes,
                .scales = work.scales + group * kPanelOutputs,
                .table_stride = work.groups * kPanelOutputs,
                .zeros = x.zero == nullptr ? work.zeros.at(group) : nullptr,
                .zeros_stride = work.groups * work.zeros.step,
                .x = reinterpret_cast<const std::int32_t*>(x.codes + row * x.inputs + group * x.group),
                .x_stride = x.inputs / 4,
                .x_scales = x.scales + row * work.groups + group,
                .x_sums = x.sums + row * work.groups + group,
                .x_table_stride = work.groups};
  TileTarget<float> target = work.target;
  target.y += row * target.stride;
  Float sums[kRows][kVectors] = {};
  target.take_sums(sums);
  for (std::int64_t lane = 0; lane < work.part.lanes; lane += at.lanes) {
    add_group<kBits>(at, lane, fetch, sums);
    at.weights += at.lanes * kLaneFloats;
    at.zeros += work.zeros.step;
    at.scales += kPanelOutputs;
    at.x += x.group / 4;
    ++at.x_scales;
    ++at.x_sums;
  }
  target.put_sums(sums);
}

// Of kRows at most, and at least kLeast.
template <int kBits, int kVectors, int kRows, int kLeast, class Fetch>
void coded_rows(const CodedPart& work, std::int64_t row, int rows, const Fetch& fetch) {
  if constexpr (kRows > kLeast) {
    if (rows < kRows) return coded_rows<kBits, kVectors, kRows - 1, kLeast>(work, row, rows, fetch);
  }
  coded_tile<kBits, kRows, kVectors>(work, row, fetch);
}

template <int kBits, int kVectors>
void coded_part(const CodedPart& work) {
  for_row_tiles(work.rows, kCodedRows, [&](std::int64_t row, int rows, std::int64_t number, std::int64_t tiles) {
    with_fetch_of<kVectors / kPanelVectors>(work.part, number, tiles, [&]<class Fetch>(const Fetch& fetch) {
      coded_rows<kBits, kVectors, kCodedRows, Fetch::least_rows(kCodedRows)>(work, row, rows, fetch);
    });
  });
}

// The same target, with its bias in `floats`, as many as a wide tile has outputs.
template <class T>
TileTarget<float> with_floats(const TileTarget<T>& target, float* floats) {
  TileTarget<float> same{target.y, target.stride, nullptr, target.outputs, target.accumulate};
  if (target.bias == nullptr) return same;
  floats_of<kWideVectors * kWidth>(target.bias, target.outputs, floats);
  same.bias = floats;
  return same;
}

// Calls run(part, wide) for the parts of a tile, of panels that fill kVectors and of at most so many inputs.
template <int kBits, int kVectors, class T, class Run>
void for_coded_parts(const CodedTile<T>& tile, std::int64_t inputs, Run run) {
  constexpr std::int64_t kCodes = 32 / kBits;
  const auto* const panels = reinterpret_cast<const float*>(tile.panels);
  for_parts<kVectors>(panels, tile.outputs, tile.x.inputs / kCodes, inputs / kCodes,
                      [&](const TilePart& part, std::int64_t output, bool wide) {
                        const TileTarget<T> target = target_of<T>(tile, output, 0, part.first > 0);
                        float bias[kWideVectors * kWidth];
                        const std::int64_t groups = tile.x.inputs / tile.x.group;
                        const std::int64_t before = output / kPanelOutputs * groups;
                        run(CodedPart{.x = tile.x,
                                      .rows = tile.rows,
                                      .scales = tile.scales + before * kPanelOutputs,
                                      .zeros = tile.zeros.behind(before),
                                      .target = with_floats(target, bias),
                                      .part = part,
                                      .groups = groups,
                                      .group_lanes = tile.x.group / kCodes},
                            wide);
                      });
}

template <class T, int kBits, int kVectors>
void linear_codes_by(const CodedTile<T>& tile) {
  const std::int64_t inputs = tile.x.group > kPartInputs ? tile.x.group : kPartInputs;  // a part has whole groups
  for_coded_parts<kBits, kVectors>(tile, inputs, [](const CodedPart& work, bool wide) {
    if (wide) return coded_part<kBits, kVectors>(work);
    coded_part<kBits, kPanelVectors>(work);
  });
}

template <class T, int kBits>
void linear_codes(const CodedTile<T>& tile) {
  if constexpr (kNarrowVectors < kWideVectors) {
    if (tile.rows > kCodedRows && tile.x.group <= kSmallGroup) return linear_codes_by<T, kBits, kNarrowVectors>(tile);
  }
  linear_codes_by<T, kBits, kWideVectors>(tile);
}

template <class T>
void encode(const T* x, const CodedRows& out, std::int64_t row) {
  const std::int64_t groups = out.inputs / out.group;
  const float zero = out.zero == nullptr ? 1.0F : load(out.zero)[0];
  std::int8_t* const codes = out.codes + row * out.inputs;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t first = group * out.group;
    const Rounded rounded = round_to_codes(x + first, out.group, codes + first);
    out.scales[row * groups + group] = rounded.scale;
    out.sums[row * groups + group] = static_cast<float>(rounded.sum) * zero;
  }
}

}  // namespace
}  // namespace unified
