// Matrix products with weights in panels: each lane of x is broadcast to meet those of a panel's outputs, so that no
// sums over lanes are left to do.
namespace unified {
namespace {

// How lanes of 32 bits of x and of weights enter a sum.
template <class T>
struct Lane;

template <>
struct Lane<float> {
  static constexpr int kRows = SIMD_WIDTH == 4 ? 2 : 6;
  static constexpr bool kInParts = true;     // sums of few values round less
  static constexpr std::int64_t kPart = 32;  // lanes
  static Float add(Float sum, Float x, Float weight) { return sum + x * weight; }
};

template <>
struct Lane<BFloat16> {
  static constexpr bool kInParts = false;
  static constexpr std::int64_t kPart = 1024;  // lanes: those of a wide tile's panels stay in the second-level cache
#if defined(__AVX512BF16__)
  static constexpr int kRows = 6;
  static Float add(Float sum, Float x, Float weight) { return Product<BFloat16>::add(sum, x, weight); }
#else
  static constexpr int kRows = SIMD_WIDTH == 4 ? 1 : 4;
  static Float low(Float pair) { return as_float(as_word(pair) << 16); }
  static Float high(Float pair) { return as_float(as_word(pair) & 0xffff0000U); }
  static Float add(Float sum, Float x, Float weight) { return sum + low(x) * low(weight) + high(x) * high(weight); }
#endif
};

template <class T, int kRows, int kVectors, class Fetch>
void linear_tile(const LinearTile<T>& tile, const TilePart& part, std::int64_t output, std::int64_t row,
                 const Fetch& fetch) {
  const std::int64_t x_stride = tile.inputs * static_cast<std::int64_t>(sizeof(T)) / 4;
  const float* const x = reinterpret_cast<const float*>(tile.x) + row * x_stride + part.first;
  const TileTarget<T> target = target_of<T>(tile, output, row, part.first > 0);
  Float sums[kRows][kVectors] = {};
  if constexpr (!Lane<T>::kInParts) target.take_sums(sums);
  for (std::int64_t i = 0; i < part.lanes; ++i) {
    fetch.lane(i);
    Float weights[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      weights[v] =
          load(part.panels + v / kPanelVectors * part.panel_stride + i * kLaneFloats + v % kPanelVectors * kWidth);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Float lane = splat_lane(x + r * x_stride + i);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Lane<T>::add(sums[r][v], lane, weights[v]);
    }
  }
  if constexpr (Lane<T>::kInParts) {
    target.add_sums(sums);
  } else {
    target.put_sums(sums);
  }
}

// Of kRows at most, and at least kLeast.
template <class T, int kVectors, int kRows, int kLeast, class Fetch>
void linear_rows(const LinearTile<T>& tile, const TilePart& part, std::int64_t output, std::int64_t row, int rows,
                 const Fetch& fetch) {
  if constexpr (kRows > kLeast) {
    if (rows < kRows) return linear_rows<T, kVectors, kRows - 1, kLeast>(tile, part, output, row, rows, fetch);
  }
  linear_tile<T, kRows, kVectors>(tile, part, output, row, fetch);
}

template <class T, int kVectors>
void linear_part(const LinearTile<T>& tile, const TilePart& part, std::int64_t output) {
  constexpr int kMost = Lane<T>::kRows;
  for_row_tiles(tile.rows, kMost, [&](std::int64_t row, int rows, std::int64_t number, std::int64_t tiles) {
    with_fetch_of<kVectors / kPanelVectors>(part, number, tiles, [&]<class Fetch>(const Fetch& fetch) {
      linear_rows<T, kVectors, kMost, Fetch::least_rows(kMost)>(tile, part, output, row, rows, fetch);
    });
  });
}

// All rows as one tile, more than `linear_part` takes at once.
template <class T, int kVectors>
void linear_tall_part(const LinearTile<T>& tile, const TilePart& part, std::int64_t output) {
  linear_rows<T, kVectors, kTallRows, Lane<T>::kRows + 1>(tile, part, output, 0, static_cast<int>(tile.rows),
                                                          FetchAhead<kVectors / kPanelVectors>(part));
}

template <class T>
void linear(const LinearTile<T>& tile) {
  constexpr int kRows = Lane<T>::kRows;
  const std::int64_t lanes = tile.inputs * static_cast<std::int64_t>(sizeof(T)) / 4;
  if constexpr (kRows * kWideVectors == kTallRows * kTallVectors) {
    if (tile.rows > kRows && tile.rows <= kTallRows) {
      return for_parts<kTallVectors>(tile.panels, tile.outputs, lanes, Lane<T>::kPart,
                                     [&](const TilePart& part, std::int64_t output, bool wide) {
                                       if (wide) return linear_tall_part<T, kTallVectors>(tile, part, output);
                                       linear_tall_part<T, kPanelVectors>(tile, part, output);
                                     });
    }
  }
  for_parts<kWideVectors>(tile.panels, tile.outputs, lanes, Lane<T>::kPart,
                          [&](const TilePart& part, std::int64_t output, bool wide) {
                            if (wide) return linear_part<T, kWideVectors>(tile, part, output);
                            linear_part<T, kPanelVectors>(tile, part, output);
                          });
}

}  // namespace
}  // namespace unified
