#pragma once

#include <cstdint>

namespace unified {

// The upper half of a float32's bits.
struct BFloat16 {
  std::uint16_t bits;
};

}  // namespace unified
