#include "robust_mutex.h"

#include <cerrno>
#include <system_error>

namespace ipc {

void RobustMutex::initialise() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int error = pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::system_category(), "shared mutex");
}

bool RobustMutex::own(int outcome) {
  if (outcome == EOWNERDEAD) outcome = pthread_mutex_consistent(&mutex_);
  if (outcome == 0) return true;
  if (outcome == EBUSY || outcome == ETIMEDOUT) return false;
  throw std::system_error(outcome, std::system_category(), "shared mutex");
}

bool RobustMutex::try_lock() { return own(pthread_mutex_trylock(&mutex_)); }

bool RobustMutex::lock_until(TimePoint deadline) {
  const auto until = to_timespec(deadline);
  return own(pthread_mutex_clocklock(&mutex_, CLOCK_MONOTONIC, &until));
}

void RobustMutex::unlock() noexcept { pthread_mutex_unlock(&mutex_); }

}  // namespace ipc
