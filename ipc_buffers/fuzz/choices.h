#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

namespace ipc::fuzz {

// A fuzzer's bytes as choices; when they are used up, all choices are 0.
class Choices {
 public:
  explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  bool left() const { return next_ < bytes_.size(); }

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }

  std::uint8_t byte() { return left() ? bytes_[next_++] : 0; }

  // One of [low, high], from two bytes.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const auto drawn = static_cast<std::uint64_t>(byte()) << 8 | byte();
    return high <= low ? low : low + static_cast<std::int64_t>(drawn % static_cast<std::uint64_t>(high - low + 1));
  }

  // Mostly within [0, size), at times beyond it, at times anywhere.
  std::int32_t index(std::size_t size) {
    const auto how = byte();
    if (how < 8) return static_cast<std::int32_t>(number());
    return static_cast<std::int32_t>(between(how < 32 ? -2 : 0, static_cast<std::int64_t>(size) - (how < 32 ? -2 : 1)));
  }

  std::vector<std::int32_t> indices(std::size_t most, std::size_t size) {
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(between(0, static_cast<std::int64_t>(most))));
    for (auto& each : chosen) each = index(size);
    return chosen;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t next_ = 0;
};

// What must hold always: ends the process, as sanitizers do.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace ipc::fuzz
