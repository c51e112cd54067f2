#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <span>

#include "native/named_object.h"

namespace ipc {

using BytesLike = native::NamedObject<"typing_extensions.Buffer">;

// The bytes of a Python object, held while C++ looks at them.
class HeldBytes {
 public:
  explicit HeldBytes(const BytesLike& object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw pybind11::error_already_set();
  }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  ~HeldBytes() { PyBuffer_Release(&view_); }

  std::span<const std::byte> span() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

}  // namespace ipc
