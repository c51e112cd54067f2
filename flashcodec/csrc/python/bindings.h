// What each file binds.
#pragma once

#include <pybind11/pybind11.h>

namespace flashcodec {

void bind_conversion(pybind11::module_& module);
void bind_images(pybind11::module_& module);

}  // namespace flashcodec
