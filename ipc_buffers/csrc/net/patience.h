#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

#include "futex.h"

namespace ipc::net {

// How long the other side may take, from seconds; throws std::invalid_argument.
inline TimePoint::duration parse_patience(double seconds) {
  constexpr double kLongest = 86400;
  if (!(seconds > 0 && seconds <= kLongest)) {
    throw std::invalid_argument("a patience of " + std::to_string(seconds) +
                                " seconds; it must be more than 0 and at most 86400");
  }
  return std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace ipc::net
