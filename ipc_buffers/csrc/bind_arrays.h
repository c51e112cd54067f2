#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "native/named_object.h"
#include "page_pool.h"

namespace ipc {

using Int32Array = pybind11::array_t<std::int32_t, pybind11::array::c_style>;
using Epochs = pybind11::array_t<std::uint64_t, pybind11::array::c_style | pybind11::array::forcecast>;
using Pages = native::NamedObject<"numpy.typing.ArrayLike">;

inline std::span<const std::int32_t> span_of(const Int32Array& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

// Page numbers from any array-like of integers; those that do not fit into 32 bits are in no pool.
inline Int32Array page_numbers(const Pages& pages) {
  namespace py = pybind11;
  if (py::isinstance<Int32Array>(pages)) return py::reinterpret_borrow<Int32Array>(pages);
  const auto array = py::array::ensure(pages);
  if (!array) throw py::type_error("page numbers must be an array-like of integers");
  if (array.size() == 0) return Int32Array(0);
  if (array.dtype().kind() != 'i' && array.dtype().kind() != 'u') {
    throw py::type_error("page numbers must be integers, got dtype " + py::str(array.dtype()).cast<std::string>());
  }
  const py::array_t<std::int64_t, py::array::c_style | py::array::forcecast> wide(array);
  Int32Array numbers(wide.size());
  for (py::ssize_t i = 0; i < wide.size(); ++i) {
    const auto page = wide.data()[i];
    if (page < 0 || page > std::numeric_limits<std::int32_t>::max()) {
      throw PageError("page " + std::to_string(page) + " is in no pool");
    }
    numbers.mutable_data()[i] = static_cast<std::int32_t>(page);
  }
  return numbers;
}

}  // namespace ipc
