#include "bindings.h"

#include <pybind11/stl.h>

#include "arena_registry.h"
#include "message_queue.h"
#include "page_pool.h"

namespace py = pybind11;

namespace ipc {

py::memoryview view_of(Region region) { return py::memoryview(py::cast(std::move(region))); }

namespace {

using ArenaHandle = Handle<Arena>;

ArenaHandle create_arena(const std::string& name, std::int64_t size) {
  if (size < 0) throw std::invalid_argument("arena '" + name + "': size is negative: " + std::to_string(size));
  const py::gil_scoped_release released;
  return ArenaHandle(Arena::create(name, ArenaKind::plain, static_cast<std::uint64_t>(size)));
}

void bind_arena(py::module_& module) {
  py::class_<Region>(module, "_Region", py::buffer_protocol()).def_buffer([](const Region& region) {
    return py::buffer_info(reinterpret_cast<std::uint8_t*>(region.bytes.data()),
                           static_cast<py::ssize_t>(region.bytes.size()));
  });

  py::class_<ArenaHandle>(module, "Arena")
      .def_static("create", &create_arena, py::arg("name"), py::arg("size"))
      .def_static(
          "attach", [](const std::string& name) { return ArenaHandle(Arena::attach(name, ArenaKind::plain)); },
          py::arg("name"))
      .def_property_readonly("name", &ArenaHandle::name)
      .def_property_readonly("size", [](const ArenaHandle& self) { return self.get()->payload().size(); })
      .def("buffer",
           [](const ArenaHandle& self) {
             auto arena = self.get();
             const auto bytes = arena->payload();
             return view_of({std::move(arena), bytes});
           })
      .def("close", &ArenaHandle::close)
      .def("unlink", &ArenaHandle::unlink);
}

void bind_registry(py::module_& module) {
  py::class_<ArenaInfo>(module, "ArenaInfo")
      .def_readonly("name", &ArenaInfo::name)
      .def_readonly("kind", &ArenaInfo::kind)
      .def_readonly("size", &ArenaInfo::size)
      .def_readonly("pid", &ArenaInfo::pid)
      .def_readonly("alive", &ArenaInfo::alive)
      .def("__repr__", [](const ArenaInfo& self) {
        return "ArenaInfo(name='" + self.name + "', kind='" + self.kind + "', size=" + std::to_string(self.size) +
               ", pid=" + std::to_string(self.pid) + ", alive=" + (self.alive ? "True" : "False") + ")";
      });
  module.def("list_arenas", &list_arenas);
  module.def("remove_stale_arenas", &remove_stale_arenas);
}

template <typename Error>
void bind_error(py::module_& module, const char* name, PyObject* base) {
  py::register_exception<Error>(module, name, base).attr("__module__") = "ipc_buffers";
}

}  // namespace
}  // namespace ipc

PYBIND11_MODULE(_core, module) {
  ipc::bind_error<ipc::ArenaError>(module, "ArenaError", PyExc_RuntimeError);
  ipc::bind_error<ipc::PageError>(module, "PageError", PyExc_ValueError);
  ipc::bind_error<ipc::MessageTooLarge>(module, "MessageTooLarge", PyExc_ValueError);
  ipc::bind_arena(module);
  ipc::bind_registry(module);
  ipc::bind_page_pool(module);
  ipc::bind_paged_buffer(module);
  ipc::bind_message_queue(module);
}
