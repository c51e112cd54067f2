#include "bindings.h"

#include <pybind11/stl.h>

#include "arena_registry.h"
#include "collective.h"
#include "message_queue.h"
#include "native/released_gil.h"
#include "net/socket.h"
#include "page_pool.h"

namespace py = pybind11;

namespace ipc {

py::memoryview view_of(Region region) { return py::memoryview(py::cast(std::move(region))); }

namespace {

using ArenaHandle = Handle<Arena>;

ArenaHandle create_arena(const std::string& name, std::int64_t size) {
  if (size < 0) throw std::invalid_argument("arena '" + name + "': size is negative: " + std::to_string(size));
  const native::ReleasedGil released;
  return ArenaHandle(Arena::create(name, ArenaKind::plain, static_cast<std::uint64_t>(size)));
}

void bind_arena(py::module_& module) {
  py::class_<Region>(module, "_Region", py::buffer_protocol()).def_buffer([](const Region& region) {
    return py::buffer_info(reinterpret_cast<std::uint8_t*>(region.bytes.data()),
                           static_cast<py::ssize_t>(region.bytes.size()));
  });

  py::class_<ArenaHandle>(module, "Arena", R"(A named region of POSIX shared memory.

Its creator's process owns the name: it stays until `unlink`, and nothing removes it behind the owner's back. Names are
machine-wide: 1 to 200 letters, digits, '.', '_' or '-'.)")
      .def_static("create", &create_arena, py::arg("name"), py::arg("size"),
                  R"(Take `size` bytes, zeroed, all at once, so that a later access cannot fail.

Raises ArenaError if /dev/shm has no room for it or the name is in use, ValueError for a bad name or size.)")
      .def_static(
          "attach", [](const std::string& name) { return ArenaHandle(Arena::attach(name, ArenaKind::plain)); },
          py::arg("name"), R"(Map an arena of another handle, by name.

Raises ArenaError if there is no such arena, or it is something else or still being created.)")
      .def_property_readonly("name", &ArenaHandle::name)
      .def_property_readonly(
          "size", [](const ArenaHandle& self) { return self.get()->payload().size(); }, "Bytes.")
      .def(
          "buffer",
          [](const ArenaHandle& self) {
            auto arena = self.get();
            const auto bytes = arena->payload();
            return view_of({std::move(arena), bytes});
          },
          "Return all bytes, writable, without a copy; the view keeps them mapped, also after `close`.")
      .def("close", &close_without_gil<Arena>, "Give up this handle's mapping. Idempotent.")
      .def("unlink", &ArenaHandle::unlink,
           "Remove the name, if it still is this arena's. Idempotent, and works after `close`.");
}

void bind_registry(py::module_& module) {
  py::class_<ArenaInfo>(module, "ArenaInfo",
                        "What is known of an arena, memory, page pool or message queue of this machine.")
      .def_readonly("name", &ArenaInfo::name)
      .def_readonly("kind", &ArenaInfo::kind,
                    R"(One of "plain arena", "memory", "page pool", "message queue" or "collective".)")
      .def_readonly("size", &ArenaInfo::size, "Bytes of host memory.")
      .def_readonly("pid", &ArenaInfo::pid, "The creator's process id.")
      .def_readonly("alive", &ArenaInfo::alive,
                    "Whether the creator still runs; one in another pid namespace counts as alive.")
      .def("__repr__", [](const ArenaInfo& self) {
        return "ArenaInfo(name='" + self.name + "', kind='" + self.kind + "', size=" + std::to_string(self.size) +
               ", pid=" + std::to_string(self.pid) + ", alive=" + (self.alive ? "True" : "False") + ")";
      });
  module.def("list_arenas", &list_arenas,
             "Return all arenas, memories, page pools and message queues on this machine, by name.");
  module.def("remove_stale_arenas", &remove_stale_arenas, "Unlink what dead creators left behind; return the names.");
}

template <typename Error>
void bind_error(py::module_& module, const char* name, PyObject* base, const char* doc) {
  const auto& error = py::register_exception<Error>(module, name, base);
  error.attr("__module__") = "ipc_buffers";
  error.attr("__doc__") = doc;
}

}  // namespace
}  // namespace ipc

PYBIND11_MODULE(_core, module) {
  ipc::bind_error<ipc::ArenaError>(
      module, "ArenaError", PyExc_RuntimeError,
      "Shared memory, of the host or a GPU, cannot be created, attached to or used; the text says what to do.");
  ipc::bind_error<ipc::PageError>(
      module, "PageError", PyExc_ValueError,
      "A page number that is out of range, or a page that is free where one in use is needed.");
  ipc::bind_error<ipc::MessageTooLarge>(module, "MessageTooLarge", PyExc_ValueError,
                                        "A message above a quarter of its queue's capacity.");
  ipc::bind_error<ipc::net::NetError>(module, "NetError", PyExc_RuntimeError,
                                      "A connection that cannot be served; the text says why.");
  ipc::bind_error<ipc::CollectiveError>(
      module, "CollectiveError", PyExc_RuntimeError,
      "A rank did not come in time; the text names it. The collective is of no more use.");
  ipc::bind_arena(module);
  ipc::bind_registry(module);
  ipc::bind_gpus(module);
  ipc::bind_memory(module);
  ipc::bind_page_pool(module);
  ipc::bind_paged_buffer(module);
  ipc::bind_message_queue(module);
  ipc::bind_collective(module);
  ipc::bind_carriers(module);
}
