// The Python face of the core: the module itself, its threads and its instruction sets.
#include "bindings.h"

#include <string>
#include <vector>

#include "selected_kernels.h"
#include "thread_pool.h"

namespace py = pybind11;

namespace unified {

namespace {

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const KernelSet* set : available_kernels()) names.emplace_back(set->name);
  return names;
}

void bind_instruction_sets(py::module_& module) {
  module.def("instruction_sets", &instruction_sets,
             "Return the instruction sets that this machine can run, the fastest first; the last is \"plain\".");
  module.def(
      "instruction_set", [] { return std::string(current_kernels().name); },
      "Return the instruction set in use: the fastest, unless another was selected.");
  module.def(
      "select_instruction_set", [](const std::string& name) { select_kernels(name); }, py::arg("name"),
      "Use an instruction set in this process from now on; raises ValueError if the machine cannot run it.");
}

}  // namespace

void bind_threads(py::module_& module) {
  py::class_<ThreadPool>(
      module, "ThreadPool",
      "Threads for the calls below; idle ones sleep. Raises ValueError unless `threads` is positive.")
      .def(py::init<int>(), py::arg("threads"))
      .def_property_readonly("threads", &ThreadPool::threads)
      .def("use", &ThreadPool::use, py::arg("threads"),
           "Let this many of the threads take tasks from now on, at least 1 and at most all; the others sleep.");
}

// NOLINTNEXTLINE: pybind11's macro
PYBIND11_MODULE(_core, module) {
  py::module_::import("ipc_buffers");  // whose AllReduce is an argument here
  module.doc() = R"(The kernels and the fused decoder, csrc/.

Tensors are contiguous and on the CPU: TypeError for another element type, ValueError for another shape, other strides
or another device.)";
  bind_threads(module);
  bind_arguments(module);
  bind_kernels(module);
  bind_decoder(module);
  bind_sandbox(module);
  bind_instruction_sets(module);
}

}  // namespace unified
