namespace unified {
namespace {

constexpr int kTileOutputs = 4;
// As many accumulators as there are registers beside kTileOutputs weights and one x.
constexpr int kTileRows = SIMD_WIDTH == 16 ? 6 : 2;

// kOutputs x kRows dot products along contiguous rows.
template <class T, int kOutputs, int kRows>
void linear_tile(const LinearTile<T>& tile, std::int64_t output, std::int64_t row) {
  constexpr int kStep = kWidth * Product<T>::kValues;
  const std::int64_t n = tile.inputs;
  const std::int64_t stride = tile.stride;
  const T* const weight = tile.weight + output * stride;
  const T* const x = tile.x + row * stride;
  const T* const next = weight + (row == 0 ? kOutputs * stride : 0);  // the first rows fetch the next weights
  Float sums[kOutputs][kRows] = {};

  const auto accumulate = [&](auto lanes) __attribute__((always_inline)) {
    Float weights[kOutputs];
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) weights[o] = lanes(weight + o * stride);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Float values = lanes(x + r * stride);
#pragma GCC unroll 8
      for (int o = 0; o < kOutputs; ++o) sums[o][r] = Product<T>::add(sums[o][r], weights[o], values);
    }
  };
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) __builtin_prefetch(next + o * stride + i);
    accumulate([i](const T* from) __attribute__((always_inline)) { return Product<T>::lanes(from + i); });
  }
  if (i < n) accumulate([i, n](const T* from) { return Product<T>::lanes(from + i, n - i); });

  for (int r = 0; r < kRows; ++r) {
    // In the same order whatever the tile: a result depends on nothing but its row and its weights.
    const auto lanes_of = [&](int o) { return o < kOutputs ? sums[o][r] : Float{}; };
    float totals[4];
    sum4(lanes_of(0), lanes_of(1), lanes_of(2), lanes_of(3), totals);
    float* const y = tile.y + (row + r) * tile.y_stride + output;
    for (int o = 0; o < kOutputs; ++o) {
      const float bias = tile.bias == nullptr ? 0.0F : widened(tile.bias[output + o]);
      y[o] = (tile.accumulate ? y[o] : 0.0F) + totals[o] + bias;
    }
  }
}

template <class T, int kOutputs, int kRows = kTileRows>
void linear_rows(const LinearTile<T>& tile, std::int64_t output, std::int64_t row, std::int64_t rows) {
  if constexpr (kRows > 0) {
    if (rows < kRows) return linear_rows<T, kOutputs, kRows - 1>(tile, output, row, rows);
    linear_tile<T, kOutputs, kRows>(tile, output, row);
  }
}

// Some weights come from memory once and stay close while they meet all rows.
template <class T, int kOutputs>
void linear_outputs(const LinearTile<T>& tile, std::int64_t output) {
  const std::int64_t parts = (tile.rows + kTileRows - 1) / kTileRows;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t first = tile.rows * part / parts;
    linear_rows<T, kOutputs>(tile, output, first, tile.rows * (part + 1) / parts - first);
  }
}

// Up to so many rows meet fewer weights at a time, so that the weights pass by only once.
constexpr int kTallOutputs = 3;
constexpr int kTallRows = SIMD_WIDTH == 16 ? 8 : kTileRows;

template <class T>
void linear(const LinearTile<T>& tile) {
  std::int64_t output = 0;
  if constexpr (kTallRows > kTileRows) {
    const bool tall = tile.rows > kTileRows && tile.rows <= kTallRows;
    for (; tall && output + kTallOutputs <= tile.outputs; output += kTallOutputs) {
      linear_rows<T, kTallOutputs, kTallRows>(tile, output, 0, tile.rows);
    }
  }
  for (; output + kTileOutputs <= tile.outputs; output += kTileOutputs) linear_outputs<T, kTileOutputs>(tile, output);
  for (; output < tile.outputs; ++output) linear_outputs<T, 1>(tile, output);
}

}  // namespace
}  // namespace unified
