// Products of small matrices of lanes: lanes of 32 bits of the left one, broadcast, times rows of the right one.
namespace unified {
namespace {

constexpr int kMostRows = 6;
constexpr int kVectors = SIMD_WIDTH == 16 ? 4 : 2;

struct Multiplication {
  const float* left;  // [rows, depth] lanes
  std::int64_t left_stride;
  const float* right;  // [depth, columns] lanes
  std::int64_t right_stride;
  std::int64_t depth;
  float* out;  // [rows, columns]
  std::int64_t out_stride;
  bool accumulate;
};

inline Float splat_lane(const float* lane) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, lane, sizeof bits);
  return splat_bits(bits);
}

// What is fetched meanwhile: nothing.
struct NoFetch {
  void lane() const {}
};

template <class T, int kRows, int kColumns, class Fetch>
void multiply_tile(const Multiplication& m, int row, std::int64_t column, Fetch& fetch) {
  const float* const left = m.left + row * m.left_stride;
  const float* right = m.right + column;
  float* const out = m.out + row * m.out_stride + column;
  Float sums[kRows][kColumns] = {};
  if (m.accumulate) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) sums[r][c] = load(out + r * m.out_stride + c * kWidth);
    }
  }
  for (std::int64_t i = 0; i < m.depth; ++i, right += m.right_stride) {
    fetch.lane();
    Float values[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) values[c] = load(right + c * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Float factor = splat_lane(left + r * m.left_stride + i);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) sums[r][c] = Product<T>::add(sums[r][c], factor, values[c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) store(out + r * m.out_stride + c * kWidth, sums[r][c]);
  }
}

template <class T, int kRows = kMostRows, class Fetch>
void multiply_rows(const Multiplication& m, int row, int rows, std::int64_t columns, Fetch& fetch) {
  if constexpr (kRows > 0) {
    if (rows < kRows) return multiply_rows<T, kRows - 1>(m, row, rows, columns, fetch);
    std::int64_t column = 0;
    for (; column + kVectors * kWidth <= columns; column += kVectors * kWidth) {
      multiply_tile<T, kRows, kVectors>(m, row, column, fetch);
    }
    for (; column < columns; column += kWidth) multiply_tile<T, kRows, 1>(m, row, column, fetch);
  }
}

// Calls fetch.lane() for each of the depth's lanes and tile of rows.
template <class T, class Fetch = const NoFetch>
void multiply(const Multiplication& m, int rows, std::int64_t columns, Fetch& fetch = NoFetch{}) {
  const int tiles = (rows + kMostRows - 1) / kMostRows;
  for (int i = 0; i < tiles; ++i) {
    const int first = rows * i / tiles;
    multiply_rows<T>(m, first, rows * (i + 1) / tiles - first, columns, fetch);
  }
}

// Lanes [lane, lane + kWidth) of a vector of n elements, zeros behind it.
template <class T, class Stored>
Float lanes_at(const Stored* vector, std::int64_t lane, std::int64_t n) {
  constexpr int kStep = kWidth * Product<T>::kValues;
  const std::int64_t first = lane * Product<T>::kValues;
  return first + kStep <= n ? Product<T>::lanes(vector + first) : Product<T>::lanes(vector + first, n - first);
}

}  // namespace
}  // namespace unified
