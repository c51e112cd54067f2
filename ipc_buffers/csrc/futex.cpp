#include "futex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <climits>
#include <ctime>

namespace ipc {
namespace {

static_assert(std::endian::native == std::endian::little, "the futex word is the low half of the position");

}  // namespace

unsigned current_core() { return static_cast<unsigned>(::sched_getcpu()); }

timespec to_timespec(TimePoint time) {
  const auto since_boot = time.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(since_boot - seconds);
  return {static_cast<time_t>(seconds.count()), static_cast<long>(rest.count())};
}

void WaitablePosition::advance(std::uint64_t value) {
  core_.store(current_core(), std::memory_order_relaxed);
  // seq_cst on both sides: either `wake` sees the sleeper's flag, or the kernel's compare sees the new value.
  value_.store(value, std::memory_order_seq_cst);
}

void WaitablePosition::wake() {
  if (sleepers_.load(std::memory_order_seq_cst) != 0 && sleepers_.exchange(0) != 0) {
    ::syscall(SYS_futex, &value_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

bool WaitablePosition::wait(std::uint64_t seen, TimePoint deadline) {
  const auto until = to_timespec(deadline);
  while (load() == seen) {
    sleepers_.store(1, std::memory_order_seq_cst);
    const auto outcome = ::syscall(SYS_futex, &value_, FUTEX_WAIT_BITSET, static_cast<std::uint32_t>(seen), &until,
                                   nullptr, FUTEX_BITSET_MATCH_ANY);
    if (outcome != 0 && errno != EAGAIN) return load() != seen;
  }
  return true;
}

}  // namespace ipc
