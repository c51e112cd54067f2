#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ipc {

using TimePoint = std::chrono::steady_clock::time_point;

inline TimePoint now() { return std::chrono::steady_clock::now(); }

unsigned current_core();

timespec to_timespec(TimePoint time);

// A position in a stream of bytes that only grows, in shared memory, on whose change processes can sleep.
class WaitablePosition {
 public:
  std::uint64_t load() const { return value_.load(std::memory_order_acquire); }

  // Where it was advanced last.
  unsigned core() const { return core_.load(std::memory_order_relaxed); }

  void advance(std::uint64_t value);

  // Wakes all sleepers, at the price of a system call only if there may be one. To be called after each `advance`, but
  // under no lock: whoever is woken may take the core, and a lock would be held meanwhile.
  void wake();

  // Sleeps until the position is no longer `seen`: true. False at the deadline or when a signal arrives.
  bool wait(std::uint64_t seen, TimePoint deadline);

 private:
  std::atomic<std::uint64_t> value_;
  std::atomic<unsigned> core_;
  // Set by who goes to sleep, cleared by who wakes: a sleeper's death costs one needless wake-up, no more.
  std::atomic<std::uint32_t> sleepers_;
};

}  // namespace ipc
