// Lets bound functions take tensors: any object whose class has DLPack's C exchange interface, as torch's has.
#pragma once

#include <pybind11/pybind11.h>

#include "native/dlpack.h"
#include "tensor_view.h"

namespace unified {

// The exchange interface of a class; null if it has none that is known here.
inline const dlpack::ExchangeApi* exchange_api(PyTypeObject* type) {
  namespace py = pybind11;
  static PyObject* const attribute = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  const auto capsule =
      py::reinterpret_steal<py::object>(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), attribute));
  const void* api = capsule ? PyCapsule_GetPointer(capsule.ptr(), dlpack::ExchangeApi::kCapsule) : nullptr;
  if (api == nullptr) PyErr_Clear();
  const auto* found = static_cast<const dlpack::ExchangeApi*>(api);
  while (found != nullptr && found->major > dlpack::kMajorVersion) found = found->older;
  return found != nullptr && found->describe != nullptr ? found : nullptr;
}

}  // namespace unified

template <>
struct pybind11::detail::type_caster<unified::TensorView> {
  PYBIND11_TYPE_CASTER(unified::TensorView, const_name("torch.Tensor"));

  bool load(handle source, bool /*convert*/) {
    const unified::dlpack::ExchangeApi* const api = unified::exchange_api(Py_TYPE(source.ptr()));
    if (api == nullptr) return false;
    unified::dlpack::Tensor tensor{};
    if (api->describe(source.ptr(), &tensor) != 0) throw error_already_set();
    value = unified::TensorView(tensor);
    return true;
  }
};
