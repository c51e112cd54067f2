// The Python face of what a process may give up.
#include "bindings.h"
#include "call_filter.h"
#include "file_rules.h"

namespace py = pybind11;

namespace unified {

void bind_sandbox(py::module_& module) {
  module.def("restrict_files", &restrict_files, py::arg("readable"), py::arg("writable"), py::arg("unix_sockets"),
             Release(),
             R"(Leave this thread, and those it starts, the files at and below these paths only; none can be executed.

TCP, signals to other processes and, unless `unix_sockets`, abstract sockets of others are refused, too, where the kernel
knows how. Returns the version of Landlock that was used, 0 if the kernel has none. Raises RuntimeError if it refuses.)");
  module.def("restrict_calls", &restrict_calls, py::arg("unix_sockets"), Release(),
             R"(Have sockets, new processes and what is for administrators refused to all threads of this process.

Sockets between processes of this machine are left if `unix_sockets`. Returns whether the kernel has filters (seccomp).
Raises RuntimeError if it refuses.)");
  module.def("file_rules_version", &file_rules_version, "Return the version of Landlock that the kernel has; 0: none.");
  module.def("has_call_filters", &has_call_filters,
             "Return whether the kernel has filters of system calls, and this architecture's calls are known.");
}

}  // namespace unified
