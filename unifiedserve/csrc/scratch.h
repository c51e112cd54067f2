#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unified {

// Memory that is used again and again: made larger if it must be, never smaller.
template <class Element>
void grow(std::vector<Element>& memory, std::int64_t size) {
  if (memory.size() < static_cast<std::size_t>(size)) memory.resize(static_cast<std::size_t>(size));
}

}  // namespace unified
