// Matrix products with weights in panels: each lane of x is broadcast to meet those of a panel's outputs, so that no
// sums over lanes are left to do.
namespace unified {
namespace {

// How lanes of 32 bits of x and of weights enter a sum: `kInputs` are in a lane of weights, which meets `kSteps` of x.
template <class T>
struct Lane;

// Of weights in whole lanes there is one step, with the lane as it is.
struct WholeLane {
  static constexpr int kSteps = 1;
  static Float weight(Float lane, int /*step*/) { return lane; }
};

template <>
struct Lane<float> : WholeLane {
  static constexpr std::int64_t kInputs = 1;
  static constexpr int kRows = SIMD_WIDTH == 4 ? 2 : 6;
  static constexpr bool kInParts = true;     // sums of few values round less
  static constexpr std::int64_t kPart = 32;  // lanes
  static Float add(Float sum, Float x, Float weight) { return sum + x * weight; }
};

// Weights of bfloat16 meet floats one after the other, in the order of `Lane<float>`.
struct NarrowLane {
  static constexpr std::int64_t kInputs = 2;
  static constexpr int kSteps = 2;
  static constexpr int kRows = Lane<float>::kRows;
  static constexpr bool kInParts = true;
  static constexpr std::int64_t kPart = Lane<float>::kPart / kInputs;
  static Float weight(Float lane, int step) {
    return as_float(step == 0 ? as_word(lane) << 16 : as_word(lane) & 0xffff0000U);
  }
  static Float add(Float sum, Float x, Float weight) { return sum + x * weight; }
};

template <>
struct Lane<BFloat16> : WholeLane {
  static constexpr std::int64_t kInputs = 2;
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

template <class T, class L, int kRows, int kVectors, class Fetch>
void linear_tile(const LinearTile<T>& tile, const TilePart& part, std::int64_t output, std::int64_t row,
                 const Fetch& fetch) {
  const std::int64_t x_stride = tile.inputs * static_cast<std::int64_t>(sizeof(T)) / 4;
  const float* const x = reinterpret_cast<const float*>(tile.x) + row * x_stride + part.first * L::kSteps;
  const TileTarget<T> target = target_of<T>(tile, output, row, part.first > 0);
  Float sums[kRows][kVectors] = {};
  if constexpr (!L::kInParts) target.take_sums(sums);
  for (std::int64_t i = 0; i < part.lanes; ++i) {
    fetch.lane(i);
#pragma GCC unroll 2
    for (int step = 0; step < L::kSteps; ++step) {
      Float weights[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const float* const panel = part.panels + v / kPanelVectors * part.panel_stride;
        weights[v] = L::weight(load(panel + i * kLaneFloats + v % kPanelVectors * kWidth), step);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Float lane = splat_lane(x + r * x_stride + i * L::kSteps + step);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[r][v] = L::add(sums[r][v], lane, weights[v]);
      }
    }
  }
  if constexpr (L::kInParts) {
    target.add_sums(sums);
  } else {
    target.put_sums(sums);
  }
}

// Of kRows at most, and at least kLeast.
template <class T, class L, int kVectors, int kRows, int kLeast, class Fetch>
void linear_rows(const LinearTile<T>& tile, const TilePart& part, std::int64_t output, std::int64_t row, int rows,
                 const Fetch& fetch) {
  if constexpr (kRows > kLeast) {
    if (rows < kRows) return linear_rows<T, L, kVectors, kRows - 1, kLeast>(tile, part, output, row, rows, fetch);
  }
  linear_tile<T, L, kRows, kVectors>(tile, part, output, row, fetch);
}

template <class T, class L, int kVectors>
void linear_part(const LinearTile<T>& tile, const TilePart& part, std::int64_t output) {
  constexpr int kMost = L::kRows;
  for_row_tiles(tile.rows, kMost, [&](std::int64_t row, int rows, std::int64_t number, std::int64_t tiles) {
    with_fetch_of<kVectors / kPanelVectors>(part, number, tiles, [&]<class Fetch>(const Fetch& fetch) {
      linear_rows<T, L, kVectors, kMost, Fetch::least_rows(kMost)>(tile, part, output, row, rows, fetch);
    });
  });
}

// All rows as one tile, more than `linear_part` takes at once.
template <class T, class L, int kVectors>
void linear_tall_part(const LinearTile<T>& tile, const TilePart& part, std::int64_t output) {
  linear_rows<T, L, kVectors, kTallRows, L::kRows + 1>(tile, part, output, 0, static_cast<int>(tile.rows),
                                                       FetchAhead<kVectors / kPanelVectors>(part));
}

// A part of narrow weights as floats, for rows of several tiles: each is widened once, not once a tile.
template <int kPanels>
class WidePart {
 public:
  explicit WidePart(const TilePart& narrow)
      : part_{&values_[0][0], kStride, narrow.first * kSteps, narrow.lanes * kSteps, nullptr} {
    for (int panel = 0; panel < kPanels; ++panel) {
      const float* from = narrow.panels + panel * narrow.panel_stride;
      float* to = &values_[panel][0];
      for (std::int64_t lane = 0; lane < narrow.lanes; ++lane, from += kLaneFloats) {
#pragma GCC unroll 2
        for (int step = 0; step < kSteps; ++step, to += kLaneFloats) {
#pragma GCC unroll 8
          for (int v = 0; v < kPanelVectors; ++v) {
            store(to + v * kWidth, NarrowLane::weight(load(from + v * kWidth), step));
          }
        }
      }
    }
  }

  const TilePart& part() const { return part_; }

 private:
  static constexpr int kSteps = NarrowLane::kSteps;
  static constexpr std::int64_t kStride = NarrowLane::kPart * kSteps * kLaneFloats;
  float values_[kPanels][kStride];
  TilePart part_;
};

template <class T, class L, int kVectors>
void linear_rows_of(const LinearTile<T>& tile, const TilePart& part, std::int64_t output) {
  if constexpr (L::kSteps > 1) {
    constexpr int kFewTiles = 4;  // whose weights are on their way from memory meanwhile
    if (tile.rows > kFewTiles * L::kRows) {
      const WidePart<kVectors / kPanelVectors> wide(part);
      return linear_part<T, Lane<T>, kVectors>(tile, wide.part(), output);
    }
  }
  linear_part<T, L, kVectors>(tile, part, output);
}

template <class T, class L>
void linear(const LinearTile<T>& tile) {
  const std::int64_t lanes = tile.inputs / L::kInputs;
  if constexpr (L::kRows * kWideVectors == kTallRows * kTallVectors) {
    if (tile.rows > L::kRows && tile.rows <= kTallRows) {
      return for_parts<kTallVectors>(tile.panels, tile.outputs, lanes, L::kPart,
                                     [&](const TilePart& part, std::int64_t output, bool wide) {
                                       if (wide) return linear_tall_part<T, L, kTallVectors>(tile, part, output);
                                       linear_tall_part<T, L, kPanelVectors>(tile, part, output);
                                     });
    }
  }
  for_parts<kWideVectors>(tile.panels, tile.outputs, lanes, L::kPart,
                          [&](const TilePart& part, std::int64_t output, bool wide) {
                            if (wide) return linear_rows_of<T, L, kWideVectors>(tile, part, output);
                            linear_rows_of<T, L, kPanelVectors>(tile, part, output);
                          });
}

// What multiplies T with narrower weights: there are none for bfloat16.
template <class T>
constexpr auto narrow_product() -> void (*)(const LinearTile<T>&) {
  if constexpr (std::is_same_v<T, float>) return linear<T, NarrowLane>;
  return nullptr;
}

}  // namespace
}  // namespace unified
