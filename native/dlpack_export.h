// Bytes handed to Python's array libraries without a copy (the data interchange protocol of the array API standard).
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "native/dlpack.h"

namespace native::dlpack {

using DeviceTuple = std::pair<std::int32_t, std::int32_t>;

// uint8 [shape], contiguous. Whoever looks at the bytes keeps `owner`.
struct Bytes {
  std::shared_ptr<void> owner;
  void* data;
  Device device;
  std::vector<std::int64_t> shape;

  DeviceTuple device_tuple() const { return {static_cast<std::int32_t>(device.type), device.id}; }
};

// What a consumer asks for, as `__dlpack__` has it.
struct Request {
  std::optional<std::pair<std::uint32_t, std::uint32_t>> max_version;
  std::optional<DeviceTuple> device;
  std::optional<bool> copy;
};

template <typename Managed>
struct Export {
  explicit Export(Bytes exported) : bytes(std::move(exported)) {
    strides.assign(bytes.shape.size(), 1);
    for (std::size_t i = bytes.shape.size(); i-- > 1;) strides[i - 1] = strides[i] * bytes.shape[i];
    constexpr DataType kUint8{1, 8, 1};
    managed.tensor = {bytes.data, bytes.device,       static_cast<std::int32_t>(bytes.shape.size()),
                      kUint8,     bytes.shape.data(), strides.data(),
                      0};
    managed.owner = this;
    managed.deleter = [](Managed* done) { const std::unique_ptr<Export> owned(static_cast<Export*>(done->owner)); };
  }

  Bytes bytes;
  std::vector<std::int64_t> strides;
  Managed managed{};
};

// A consumer renames the capsule that it takes; one that nobody took is still to be freed.
template <typename Managed>
void free_unused(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, Managed::kCapsule) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::kCapsule));
  managed->deleter(managed);
}

template <typename Managed>
pybind11::capsule export_as(Bytes bytes) {
  auto exported = std::make_unique<Export<Managed>>(std::move(bytes));
  pybind11::capsule capsule(&exported->managed, Managed::kCapsule, &free_unused<Managed>);
  exported.release();  // NOLINT(bugprone-unused-return-value): the capsule's now
  return capsule;
}

// Make the capsule that `__dlpack__` returns. `name` says what it is in errors: BufferError where a copy or another
// device is asked for.
inline pybind11::capsule export_bytes(const std::string& name, Bytes bytes, const Request& request) {
  if (request.device && *request.device != bytes.device_tuple()) {
    throw pybind11::buffer_error(name + " is not exported to another device");
  }
  if (request.copy.value_or(false)) throw pybind11::buffer_error(name + " is exported without a copy only");
  if (request.max_version && request.max_version->first >= 1) return export_as<Versioned>(std::move(bytes));
  return export_as<Unversioned>(std::move(bytes));
}

}  // namespace native::dlpack
