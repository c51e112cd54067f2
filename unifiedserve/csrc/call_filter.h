#pragma once

namespace unified {

// Has the kernel refuse system calls to all threads of this process, which neither decoding nor compiling a grammar
// needs: sockets (those of AF_UNIX are left if `unix_sockets`), new processes and programs, other processes' memory and
// signals, mounts, modules, keys, rings of calls. Most fail with EPERM. Returns whether the kernel and the architecture
// have such filters. Throws std::system_error. https://docs.kernel.org/userspace-api/seccomp_filter.html
bool restrict_calls(bool unix_sockets);

// Whether the kernel has such filters, and this architecture's calls are known.
bool has_call_filters();

}  // namespace unified
