#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstddef>

namespace native {

template <std::size_t kSize>
struct TypeName {
  char text[kSize]{};

  // NOLINTNEXTLINE(google-explicit-constructor): written as a string
  constexpr TypeName(const char (&name)[kSize]) { std::copy_n(name, kSize, text); }
};

constexpr bool is_object(PyObject* /*object*/) { return true; }

// Any Python object; signatures, and so the generated stubs, say that it is a `kName`.
template <TypeName kName>
class NamedObject : public pybind11::object {
  PYBIND11_OBJECT_DEFAULT(NamedObject, pybind11::object, is_object)
};

}  // namespace native

template <native::TypeName kName>
struct pybind11::detail::handle_type_name<native::NamedObject<kName>> {
  static constexpr auto name = const_name(kName.text);
};
