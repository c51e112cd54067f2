#include <pybind11/stl.h>

#include "bindings.h"
#include "cuda/gpu.h"
#include "native/cuda/driver.h"
#include "native/released_gil.h"
#include "place.h"

namespace py = pybind11;

namespace ipc {
namespace {

using cuda::Gpu;

// Without the GIL: the driver may take a while.
template <typename Call>
auto ask(const Call& call) {
  const native::ReleasedGil released;
  try {
    return call();
  } catch (const native::cuda::CudaError& error) {
    throw ArenaError(error.what());
  }
}

std::string place_of(const Gpu& gpu) { return Place{gpu.number}.text(); }

std::uint64_t free_bytes(const std::string& text) {
  const auto place = Place::parse(text);
  if (!place.gpu) throw std::invalid_argument("free bytes are a GPU's, not those of '" + text + "'");
  return ask([&] { return cuda::free_bytes(*place.gpu); });
}

}  // namespace

void bind_gpus(py::module_& module) {
  py::class_<Gpu>(module, "Gpu", "A GPU that this process sees.")
      .def_property_readonly("place", &place_of, R"(As this process numbers its GPUs: "cuda:N".)")
      .def_readonly("name", &Gpu::name)
      .def_readonly("uuid", &Gpu::uuid, R"(As nvidia-smi writes it: "GPU-…".)")
      .def_readonly("capability", &Gpu::capability, "The compute capability, such as (9, 0).")
      .def_readonly("total_bytes", &Gpu::total_bytes)
      .def_readonly("multiprocessors", &Gpu::multiprocessors)
      .def_readonly("compute_mode", &Gpu::compute_mode,
                    R"(Who may use it: "default" (all processes), "exclusive process" or "prohibited".)")
      .def_readonly("driver", &Gpu::driver, "The CUDA version that the driver supports, such as (13, 0).")
      .def("__repr__", [](const Gpu& self) {
        return "Gpu(place='" + place_of(self) + "', name='" + self.name + "', uuid='" + self.uuid + "')";
      });
  module.def(
      "list_gpus", [] { return ask(&cuda::list_gpus); },
      R"(Return the GPUs that this process sees, as it numbers them; that takes no memory of theirs.

Raises ArenaError if there is none, no driver or too old a driver. Processes that are forked later cannot use CUDA.)");
  module.def("free_bytes", &free_bytes, py::arg("place"),
             R"(Return the bytes of a GPU, "cuda:N", that nobody uses; what this process's context takes counts as used.

Raises ArenaError if there is no such GPU or no driver, ValueError if `place` is no GPU. Processes that are forked later
cannot use CUDA.)");
}

}  // namespace ipc
