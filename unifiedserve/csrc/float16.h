#pragma once

#include <cstdint>

namespace unified {

// IEEE 754's binary16.
struct Float16 {
  std::uint16_t bits;
};

}  // namespace unified
