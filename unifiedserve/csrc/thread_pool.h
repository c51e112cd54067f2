#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace unified {

// Threads that share out the numbered tasks of one call at a time; the calling thread is one of them. Tasks are taken
// one by one, so that a thread whose core is busy with something else takes fewer. Idle threads look for work for a
// moment and then sleep.
class ThreadPool {
 public:
  // Throws std::invalid_argument if `threads` is not positive.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // How many of the threads take tasks from now on: at least 1, at most all.
  void use(int threads) { used_.store(std::clamp(threads, 1, this->threads())); }

  // Calls task(number, thread) for every number in [0, count), and returns when all calls have. Thread 0 is the
  // caller's. Tasks must not throw.
  template <class Task>
  void run(std::int64_t count, Task&& task) {
    const auto call = [](void* context, std::int64_t number, int thread) {
      (*static_cast<std::remove_reference_t<Task>*>(context))(number, thread);
    };
    run({.call = call, .context = &task, .count = static_cast<std::uint32_t>(count)});
  }

 private:
  struct Job {
    void (*call)(void* context, std::int64_t number, int thread);
    void* context;
    std::uint32_t count;
  };

  void run(const Job& job);
  void work(int thread);
  bool take_task(int thread);
  bool wait_for_work(std::uint32_t& seen);

  std::mutex busy_;
  Job job_{};
  // Number of the job, and how many of its tasks nobody has taken. Whoever takes one keeps the job alive.
  std::atomic<std::uint64_t> state_{0};
  std::atomic<std::uint32_t> unfinished_{0};
  std::atomic<std::uint32_t> jobs_{0};  // what sleeping threads wait on
  std::atomic<bool> stopping_{false};
  std::atomic<int> used_;
  std::vector<std::thread> workers_;
};

// Calls task(row, thread) for rows of `width` elements: few of them are done before another thread would be awake.
template <class Task>
void for_rows(ThreadPool& pool, std::int64_t rows, std::int64_t width, Task&& task) {
  constexpr std::int64_t kWorthSharing = 32 << 10;
  constexpr std::int64_t kOfTask = 16 << 10;
  const auto for_range = [&](std::int64_t first, std::int64_t last, int thread) {
    for (std::int64_t row = first; row < last; ++row) task(row, thread);
  };
  if (rows * width < kWorthSharing) return for_range(0, rows, 0);
  // Neighbours go to one thread: what is written of them may share lines of cache.
  const std::int64_t fair = std::max<std::int64_t>(rows / (4 * pool.threads()), 1);
  const std::int64_t together = std::clamp<std::int64_t>(kOfTask / width, 1, fair);
  pool.run((rows + together - 1) / together, [&](std::int64_t number, int thread) {
    for_range(number * together, std::min((number + 1) * together, rows), thread);
  });
}

}  // namespace unified
