#pragma once

#include <sys/types.h>

#include <cstdint>

namespace ipc {

// Names a process beyond the reuse of its pid. Plain data: it lives in shared memory.
struct ProcessIdentity {
  std::int64_t pid = 0;
  std::uint64_t start_time = 0;     // clock ticks after boot, field 22 of /proc/<pid>/stat
  std::uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid

  static ProcessIdentity current();

  // A process of another pid namespace cannot be looked up from here, and counts as alive. So does one whose status a
  // sandbox hides.
  bool is_alive() const;
};

}  // namespace ipc
