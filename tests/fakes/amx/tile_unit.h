// AMX's registers in software, as the Intel SDM (volume 2) has its instructions work. What would fault there throws.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace fake {

class TileUnit {
 public:
  void configure(const std::uint8_t* from) {
    std::uint8_t bytes[64];
    std::memcpy(bytes, from, sizeof bytes);
    require(bytes[0] == 1 && bytes[1] == 0, "the palette");
    for (int i = 2; i < 16; ++i) require(bytes[i] == 0, "reserved bytes");
    for (int i = 32; i < 48; ++i) require(bytes[i] == 0, "bytes of registers that there are not");
    for (int i = 56; i < 64; ++i) require(bytes[i] == 0, "rows of registers that there are not");
    for (int i = 0; i < kTiles; ++i) {
      Tile& tile = tiles_[i] = {};
      tile.row_bytes = bytes[16 + 2 * i] | bytes[17 + 2 * i] << 8;
      tile.rows = bytes[48 + i];
      require(tile.rows <= kRows && tile.row_bytes <= kRowBytes, "a register's shape");
      require((tile.rows == 0) == (tile.row_bytes == 0), "half a register's shape");
    }
    configured_ = true;
  }

  void release() {
    for (Tile& tile : tiles_) tile = {};
    configured_ = false;
  }

  bool configured() const { return configured_; }

  void zero(int number) { std::memset(usable(number).data, 0, sizeof(Tile::data)); }

  void load(int number, const std::uint8_t* from, std::int64_t stride) {
    zero(number);
    Tile& tile = tiles_[number];
    for (int row = 0; row < tile.rows; ++row) std::memcpy(tile.data[row], from + row * stride, tile.row_bytes);
  }

  void store(int number, std::uint8_t* to, std::int64_t stride) {
    const Tile& tile = usable(number);
    for (int row = 0; row < tile.rows; ++row) std::memcpy(to + row * stride, tile.data[row], tile.row_bytes);
  }

  void multiply(int sums_number, int left_number, int right_number) {
    auto [sums, left, right] = factors(sums_number, left_number, right_number);
    for (int row = 0; row < sums.rows; ++row) {
      for (int column = 0; column < sums.row_bytes / 4; ++column) {
        float even = 0;
        float odd = 0;
        for (int lane = 0; lane < right.rows; ++lane) {
          even = flushed(std::fma(half(left, row, 2 * lane), half(right, lane, 2 * column), even));
          odd = flushed(std::fma(half(left, row, 2 * lane + 1), half(right, lane, 2 * column + 1), odd));
        }
        float sum = 0;
        std::memcpy(&sum, sums.data[row] + 4 * column, 4);
        sum = flushed(flushed(sum) + flushed(even + odd));
        std::memcpy(sums.data[row] + 4 * column, &sum, 4);
      }
    }
    for (int row = sums.rows; row < kRows; ++row) std::memset(sums.data[row], 0, kRowBytes);
  }

  // Of bytes with a sign on the left, and on the right those of `Right`.
  template <class Right>
  void multiply_bytes(int sums_number, int left_number, int right_number) {
    auto [sums, left, right] = factors(sums_number, left_number, right_number);
    for (int row = 0; row < sums.rows; ++row) {
      for (int column = 0; column < sums.row_bytes / 4; ++column) {
        std::int32_t sum = 0;
        std::memcpy(&sum, sums.data[row] + 4 * column, 4);
        for (int i = 0; i < left.row_bytes; ++i) {
          sum +=
              static_cast<std::int8_t>(left.data[row][i]) * static_cast<Right>(right.data[i / 4][4 * column + i % 4]);
        }
        std::memcpy(sums.data[row] + 4 * column, &sum, 4);
      }
    }
    for (int row = sums.rows; row < kRows; ++row) std::memset(sums.data[row], 0, kRowBytes);
  }

 private:
  static constexpr int kTiles = 8;
  static constexpr int kRows = 16;
  static constexpr int kRowBytes = 64;

  struct Tile {
    int rows = 0;
    int row_bytes = 0;
    std::uint8_t data[kRows][kRowBytes] = {};
  };

  struct Factors {
    Tile& sums;
    const Tile& left;
    const Tile& right;
  };

  Factors factors(int sums_number, int left_number, int right_number) {
    Tile& sums = usable(sums_number);
    const Tile& left = usable(left_number);
    const Tile& right = usable(right_number);
    const bool distinct = sums_number != left_number && sums_number != right_number && left_number != right_number;
    require(distinct, "one register twice");
    require(sums.rows == left.rows && sums.row_bytes == right.row_bytes, "sums of another shape than their factors");
    require(left.row_bytes / 4 == right.rows && left.row_bytes % 4 == 0 && sums.row_bytes % 4 == 0, "lanes");
    return {sums, left, right};
  }

  static void require(bool condition, const char* what) {
    if (!condition) throw std::logic_error(what);
  }

  static float flushed(float value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
  }

  static float half(const Tile& tile, int row, int number) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, tile.data[row] + 2 * number, 2);
    return flushed(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
  }

  Tile& usable(int number) {
    require(configured_, "an instruction before LDTILECFG");
    require(tiles_[number].rows > 0, "a register that is not configured");
    return tiles_[number];
  }

  bool configured_ = false;
  Tile tiles_[kTiles];
};

}  // namespace fake
