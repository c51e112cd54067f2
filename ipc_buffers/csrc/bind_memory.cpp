#include <pybind11/stl.h>

#include <optional>
#include <utility>

#include "bindings.h"
#include "memory.h"
#include "native/dlpack_export.h"
#include "native/held_bytes.h"
#include "native/released_gil.h"

namespace py = pybind11;

namespace ipc {
namespace {

namespace dlpack = native::dlpack;
using MemoryHandle = Handle<Memory>;

dlpack::Device device_of(const Memory& memory) {
  const auto place = memory.place();
  if (place.gpu) return {dlpack::DeviceType::cuda, *place.gpu};
  return {dlpack::DeviceType::cpu, 0};
}

dlpack::DeviceTuple dlpack_device(const MemoryHandle& self) {
  const auto device = device_of(*self.get());
  return {static_cast<std::int32_t>(device.type), device.id};
}

py::capsule dlpack_capsule(const MemoryHandle& self, const py::object& /*stream*/,
                           std::optional<std::pair<std::uint32_t, std::uint32_t>> max_version,
                           std::optional<dlpack::DeviceTuple> dl_device, std::optional<bool> copy) {
  auto memory = self.get();
  const auto size = static_cast<std::int64_t>(memory->size());
  const auto name = "memory '" + self.name() + "', which is on " + memory->place().text() + ",";
  auto* const address = memory->address();
  const auto device = device_of(*memory);
  return dlpack::export_bytes(name, {std::move(memory), address, device, {size}}, {max_version, dl_device, copy});
}

std::uint64_t checked(const char* what, std::int64_t value) {
  if (value < 0) throw std::invalid_argument(std::string(what) + " is negative: " + std::to_string(value));
  return static_cast<std::uint64_t>(value);
}

MemoryHandle create(const std::string& name, std::int64_t size, const std::string& place,
                    const native::BytesLike& manifest) {
  const auto bytes = checked("size", size);
  const native::HeldBytes held(manifest);
  const native::ReleasedGil released;
  return MemoryHandle(Memory::create(name, bytes, Place::parse(place), held.span()));
}

MemoryHandle map_file(const std::string& name, const std::string& path, std::int64_t offset, std::int64_t size,
                      const native::BytesLike& manifest) {
  const auto first = checked("offset", offset), bytes = checked("size", size);
  const native::HeldBytes held(manifest);
  const native::ReleasedGil released;
  return MemoryHandle(Memory::map_file(name, path, first, bytes, held.span()));
}

MemoryHandle attach(const std::string& name) {
  const native::ReleasedGil released;
  return MemoryHandle(Memory::attach(name));
}

py::bytes manifest(const MemoryHandle& self) {
  const auto memory = self.get();
  const auto told = memory->manifest();
  return {reinterpret_cast<const char*>(told.data()), told.size()};
}

py::bytes read(const MemoryHandle& self, std::int64_t offset, std::int64_t size) {
  const auto memory = self.get();
  const auto first = checked("offset", offset), count = checked("size", size);
  if (count > memory->size()) throw std::out_of_range(std::to_string(count) + " bytes are more than there are");
  auto bytes = py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(count)));
  if (!bytes) throw py::error_already_set();
  auto* const target = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes.ptr()));
  {
    const native::ReleasedGil released;
    memory->read(first, {target, count});
  }
  return bytes;
}

void write(const MemoryHandle& self, std::int64_t offset, const native::BytesLike& data) {
  const auto memory = self.get();
  const auto first = checked("offset", offset);
  const native::HeldBytes held(data);
  const native::ReleasedGil released;
  memory->write(first, held.span());
}

void pin(const MemoryHandle& self, const std::string& place) {
  const auto memory = self.get();
  const native::ReleasedGil released;
  memory->pin(Place::parse(place));
}

}  // namespace

void bind_memory(py::module_& module) {
  py::class_<MemoryHandle>(module, "Memory", R"(A named block of bytes in a place: host memory, or a GPU.

What lies on a GPU is shared by CUDA IPC. It belongs to the process that created it, and is freed when that has closed
it and no view is left there, or ends; the others must have closed theirs before, or what they see is undefined. Its
name, and what it needs to be found, are a small arena: `list_arenas` shows it, and `remove_stale_arenas` removes it if
its creator is dead. It needs nothing of CUDA but the driver.

`torch.from_dlpack(memory)` gives a view, uint8 [nbytes], that keeps it mapped, also after `close` and `unlink`. No
stream is waited for: whoever writes says when it is done.)")
      .def_static("create", &create, py::arg("name"), py::arg("size"), py::arg("place") = "host",
                  py::arg("manifest") = py::bytes(),
                  R"(Take `size` bytes, zeroed, at a place: "host", or "cuda:N" as this process numbers its GPUs.

`manifest` is what others are told of the contents; it stays in host memory.
Raises ArenaError if the place has no room for it, there is no such GPU or no driver, or the name is in use; ValueError
for a bad name, size or place.)")
      .def_static("map_file", &map_file, py::arg("name"), py::arg("path"), py::arg("offset"), py::arg("size"),
                  py::arg("manifest") = py::bytes(),
                  R"(Map `size` bytes of a file for reading, from `offset`, a multiple of 4096; copies nothing.

All processes share the pages of the kernel's file cache. A write ends the process by SIGSEGV. The file may lose its
name meanwhile. It must not get shorter, because a read beyond its end ends the process by SIGBUS. Others attach
through this process, while it has the memory open, and must have the right to see its descriptors.
Raises ArenaError if the file cannot be mapped or is shorter, this process lets nobody see its descriptors (prctl's
PR_GET_DUMPABLE), or the name is in use; ValueError as `create` does, and for other offsets.)")
      .def_static("attach", &attach, py::arg("name"),
                  R"(Map a memory of another handle, by name; within a process that is one mapping on a GPU.

Raises ArenaError if there is no such memory, it is something else or still being created, its creator is dead or has
closed its file, or this process does not see its GPU.)")
      .def_property_readonly("name", &MemoryHandle::name)
      .def_property_readonly(
          "nbytes", [](const MemoryHandle& self) { return self.get()->size(); }, "Bytes.")
      .def_property_readonly(
          "place", [](const MemoryHandle& self) { return self.get()->place().text(); },
          R"(Where it is: "host" or "cuda:N", as this process numbers its GPUs.)")
      .def_property_readonly(
          "writable", [](const MemoryHandle& self) { return self.get()->is_writable(); },
          "Whether its bytes can be written: those of a file cannot.")
      .def_property_readonly("manifest", &manifest, "What its creator told of the contents.")
      .def("read", &read, py::arg("offset"), py::arg("size"),
           "Return a copy of `size` bytes from `offset`; raises IndexError if they are not within the memory.")
      .def("write", &write, py::arg("offset"), py::arg("data"),
           R"(Copy `data` to `offset`; done when it returns.

Raises IndexError if it does not fit there, ArenaError if these are bytes of a file.)")
      .def(
          "protect", [](const MemoryHandle& self) { self.get()->protect(); },
          R"(Protect host memory from this process, as far as this handle maps it: a write ends the process by SIGSEGV.

Handles and processes that map it otherwise may still write. Raises ArenaError if it is on a GPU.)")
      .def("pin", &pin, py::arg("place"),
           R"(Page-lock host memory for copies to and from a GPU, until the memory is closed and no view is left.

Raises ArenaError if the driver refuses or the memory is not in host memory, ValueError if `place` is no GPU.)")
      .def("__dlpack__", &dlpack_capsule, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(), py::arg("copy") = py::none(),
           R"(Return a capsule of uint8 [nbytes], as DLPack's Python specification says.

It is a versioned one if `max_version` is (1, 0) or later. Raises BufferError for a copy or another device.)")
      .def("__dlpack_device__", &dlpack_device, "Return (1, 0) for host memory, (2, N) for a GPU.")
      .def("close", &close_without_gil<Memory>, "Give up this handle's mapping. Idempotent.")
      .def("unlink", &MemoryHandle::unlink,
           "Remove the name, if it still is this memory's. Idempotent, and works after `close`.");
}

}  // namespace ipc
