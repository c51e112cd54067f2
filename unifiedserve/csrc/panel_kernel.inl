// Matrix products for many rows: with the rows' elements side by side each lane of a weight meets a vector of rows, so
// that no sums over lanes are left to do.
namespace unified {
namespace {

// A right-hand side of so many lanes stays in the first-level cache while it meets all outputs of a tile.
constexpr std::int64_t kPanelDepth = 128;

template <class T>
void pack_panel(const T* x, std::int64_t rows, std::int64_t inputs, float* panel) {
  const std::int64_t lanes = inputs / Product<T>::kValues;
  for (std::int64_t row = 0; row < kPanelRows; row += kWidth) {
    for (std::int64_t lane = 0; lane < lanes; lane += kWidth) {
      Float square[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) {
        square[i] = row + i < rows ? lanes_at(x + (row + i) * inputs, lane, inputs) : Float{};
      }
      transpose(square);
      for (int i = 0; i < kWidth && lane + i < lanes; ++i) store(panel + (lane + i) * kPanelRows + row, square[i]);
    }
  }
}

// Products [outputs, kPanelRows] to rows of y.
template <class T>
void write_rows(const PanelTile<T>& tile, const float* products) {
  for (std::int64_t output = 0; output < tile.outputs; output += kWidth) {
    const std::int64_t left = tile.outputs - output;
    const std::int64_t count = left < kWidth ? left : kWidth;
    const Float bias = tile.bias == nullptr ? Float{} : take(tile.bias + output, count);
    for (std::int64_t row = 0; row < tile.rows; row += kWidth) {
      Float square[kWidth];
      for (int i = 0; i < kWidth; ++i) {
        square[i] = i < count ? load(products + (output + i) * kPanelRows + row) : Float{};
      }
      transpose(square);
      for (int i = 0; i < kWidth && row + i < tile.rows; ++i) {
        float* const y = tile.y + (row + i) * tile.y_stride + output;
        const Float value = square[i] + bias;
        put(y, tile.accumulate ? take(y, count) + value : value, count);
      }
    }
  }
}

template <class T>
void multiply_panel(const PanelTile<T>& tile) {
  const std::int64_t lanes = tile.inputs / Product<T>::kValues;
  const auto* const weight = reinterpret_cast<const float*>(tile.weight);
  float products[kPanelOutputs * kPanelRows];
  for (std::int64_t first = 0; first < lanes; first += kPanelDepth) {
    const std::int64_t depth = lanes - first < kPanelDepth ? lanes - first : kPanelDepth;
    multiply<T>(
        {weight + first, lanes, tile.panel + first * kPanelRows, kPanelRows, depth, products, kPanelRows, first > 0},
        static_cast<int>(tile.outputs), kPanelRows);
  }
  write_rows(tile, products);
}

}  // namespace
}  // namespace unified
