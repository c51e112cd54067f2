#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "native/released_gil.h"
#include "tensor_caster.h"

namespace unified {

using Release = pybind11::call_guard<native::ReleasedGil>;

void bind_arguments(pybind11::module_& module);
void bind_decoder(pybind11::module_& module);
void bind_kernels(pybind11::module_& module);
void bind_sandbox(pybind11::module_& module);
void bind_threads(pybind11::module_& module);

}  // namespace unified
