#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "futex.h"

namespace ipc {

// Decides, from how the last waits went, whether to look for a change for a moment before going to sleep: yes while
// waits are short, no after an idle time, and more and more rarely when looking was in vain. Races between threads
// that share it cost accuracy only.
class Spin {
 public:
  static constexpr auto kLongest = std::chrono::microseconds(40);

  bool is_worth_it() {
    if (!last_wait_was_short_.load(std::memory_order_relaxed)) return false;
    const auto skip = skip_.load(std::memory_order_relaxed);
    if (skip > 0) skip_.store(skip - 1, std::memory_order_relaxed);
    return skip == 0;
  }

  // Looks until the position is no longer `seen`: true; false at the deadline.
  bool until_changed(const WaitablePosition& position, std::uint64_t seen, TimePoint deadline) {
    // Who would advance it may wait for this very core.
    const auto looks = [&] { return position.core() == current_core() ? 1 : kLooksBeforeYield; };
    return until([&] { return position.load() != seen; }, looks, deadline);
  }

  // Looks until there is a change: true; false at the deadline. Others may have the core after so many looks.
  template <typename Changed, typename Looks>
  bool until(const Changed& changed, const Looks& looks, TimePoint deadline) {
    do {
      for (int left = looks(); left > 0; --left) {
        if (changed()) {
          penalty_.store(0, std::memory_order_relaxed);
          return true;
        }
        relax();
      }
      ::sched_yield();
    } while (now() < deadline);
    const auto penalty = std::min(2 * penalty_.load(std::memory_order_relaxed) + 1, kMostSkips);
    penalty_.store(penalty, std::memory_order_relaxed);
    skip_.store(penalty, std::memory_order_relaxed);
    return false;
  }

  // After a wait that ended in sleep; its wake-up took part of the time.
  void learn(TimePoint::duration waited) { last_wait_was_short_.store(waited < kShort, std::memory_order_relaxed); }

 private:
  static constexpr auto kShort = std::chrono::microseconds(100);
  static constexpr int kLooksBeforeYield = 64;
  static constexpr int kMostSkips = 1023;

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::atomic<bool> last_wait_was_short_{false};
  std::atomic<int> skip_{0};
  std::atomic<int> penalty_{0};
};

}  // namespace ipc
