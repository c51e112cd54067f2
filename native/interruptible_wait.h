#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <chrono>
#include <optional>

namespace native {

using TimePoint = std::chrono::steady_clock::time_point;

// The time in `seconds` from now, which are not negative; without a number, or with more than 30 years, never.
inline TimePoint deadline_after(std::optional<double> seconds) {
  constexpr double kForever = 1e9;
  if (!seconds || *seconds > kForever) return TimePoint::max();
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(*seconds));
}

// Calls `attempt(until)` until it returns true; false at the deadline. `attempt` is called with the GIL, lets go of it
// while it waits, and comes back by `until`: every `interval` Python's signal handlers run, and what one raises is
// thrown.
template <class Attempt>
bool wait_interruptibly(TimePoint deadline, std::chrono::milliseconds interval, const Attempt& attempt) {
  for (;;) {
    if (attempt(std::min(deadline, std::chrono::steady_clock::now() + interval))) return true;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

}  // namespace native
