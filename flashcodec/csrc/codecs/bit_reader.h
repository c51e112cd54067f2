// Reads bits, most significant first. Past the end there are zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace flashcodec {

class BitReader {
 public:
  explicit BitReader(std::span<const uint8_t> data) : data_(data) {}

  bool flag() { return bits(1) != 0; }

  // At most 32.
  uint32_t bits(int count) {
    uint32_t value = 0;
    for (; count > 0; --count, ++at_) {
      const unsigned bit = at_ < data_.size() * 8 ? data_[at_ / 8] >> (7 - at_ % 8) & 1U : 0;
      value = value << 1 | bit;
    }
    return value;
  }

  void skip(int count) { at_ += static_cast<size_t>(count); }

  // ue(v), H.264 9.1; the same code as AV1's uvlc() (4.10.3). UINT32_MAX if it is longer than 32 bits.
  uint32_t exp_golomb() {
    int zeros = 0;
    while (zeros < 32 && !flag()) ++zeros;
    if (zeros == 32) return UINT32_MAX;
    return (1U << zeros) - 1 + bits(zeros);
  }

  bool overrun() const { return at_ > data_.size() * 8; }

 private:
  std::span<const uint8_t> data_;
  size_t at_ = 0;
};

}  // namespace flashcodec
