#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <span>

#include "named_object.h"

namespace native {

using BytesLike = NamedObject<"typing_extensions.Buffer">;

// The bytes of a contiguous bytes-like object, held while C++ looks at them; may be let go of in any thread.
class HeldBytes {
 public:
  explicit HeldBytes(const pybind11::object& object) : HeldBytes(object, PyBUF_SIMPLE) {}
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  ~HeldBytes() {
    const pybind11::gil_scoped_acquire gil;
    PyBuffer_Release(&view_);
  }

  std::span<const std::byte> span() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 protected:
  HeldBytes(const pybind11::object& object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw pybind11::error_already_set();
  }

  Py_buffer view_{};
};

// The same of one that C++ writes to.
class WritableBytes : public HeldBytes {
 public:
  explicit WritableBytes(const pybind11::object& object) : HeldBytes(object, PyBUF_WRITABLE) {}

  std::span<std::byte> span() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }
};

}  // namespace native
