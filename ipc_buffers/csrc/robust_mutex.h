#pragma once

#include <pthread.h>

#include "futex.h"

namespace ipc {

// A mutex in shared memory that the death of its holder unlocks. What it guards must be right at every instruction.
// Satisfies Lockable up to the deadline-taking lock, so std::unique_lock adopts it.
class RobustMutex {
 public:
  void initialise();

  bool try_lock();
  bool lock_until(TimePoint deadline);
  void unlock() noexcept;

 private:
  bool own(int outcome);

  pthread_mutex_t mutex_;
};

}  // namespace ipc
