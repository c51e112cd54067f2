#pragma once

#include <string>
#include <vector>

namespace unified {

// Leaves this thread, and those it starts, what is at or below `readable` to read, and what is at or below `writable`
// to read, write, create and remove. Also they get no TCP ports, signal no process outside and, unless `unix_sockets`,
// connect to no abstract socket outside, as far as the kernel knows. Paths that do not exist are passed over. Returns
// the version of Landlock that was used; 0: the kernel has none. Throws std::system_error.
// https://docs.kernel.org/userspace-api/landlock.html
int restrict_files(const std::vector<std::string>& readable, const std::vector<std::string>& writable,
                   bool unix_sockets);

// The version of Landlock that the kernel has; 0: none.
int file_rules_version();

}  // namespace unified
