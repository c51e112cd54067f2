#include "thread_pool.h"

#include <chrono>
#include <stdexcept>
#include <string>

namespace unified {

namespace {

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr int kLooksPerClock = 32;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Looks for a while whether `done`.
template <class Condition>
bool spin_until(Condition done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int threads) : used_(threads) {
  if (threads < 1) throw std::invalid_argument("threads must be at least 1, got " + std::to_string(threads));
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  jobs_.fetch_add(1);
  jobs_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Job& job) {
  if (job.count <= 1 || used_.load(std::memory_order_relaxed) == 1) {
    for (std::uint32_t number = 0; number < job.count; ++number) job.call(job.context, number, 0);
    return;
  }
  const std::scoped_lock lock(busy_);
  job_ = job;
  unfinished_.store(job.count, std::memory_order_relaxed);
  const std::uint64_t number = (state_.load(std::memory_order_relaxed) >> 32) + 1;
  state_.store(number << 32 | job.count, std::memory_order_release);
  jobs_.fetch_add(1);
  jobs_.notify_all();
  while (take_task(0)) {
  }
  const auto done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (spin_until(done)) return;
  for (std::uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire)) {
    unfinished_.wait(left, std::memory_order_acquire);
  }
}

bool ThreadPool::take_task(int thread) {
  std::uint64_t state = state_.load(std::memory_order_acquire);
  do {
    if (static_cast<std::uint32_t>(state) == 0) return false;
  } while (!state_.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel, std::memory_order_acquire));
  job_.call(job_.context, job_.count - static_cast<std::uint32_t>(state), thread);
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  return true;
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  while (wait_for_work(seen)) {
    while (thread < used_.load(std::memory_order_relaxed) && take_task(thread)) {
    }
  }
}

// False when the pool ends.
bool ThreadPool::wait_for_work(std::uint32_t& seen) {
  const auto changed = [&] { return jobs_.load(std::memory_order_acquire) != seen; };
  if (!spin_until(changed)) jobs_.wait(seen, std::memory_order_acquire);
  seen = jobs_.load(std::memory_order_acquire);
  return !stopping_.load(std::memory_order_relaxed);
}

}  // namespace unified
