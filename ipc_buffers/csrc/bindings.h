#pragma once

#include <pybind11/pybind11.h>

#include "handle.h"

namespace ipc {

pybind11::memoryview view_of(Region region);

void bind_page_pool(pybind11::module_& module);
void bind_paged_buffer(pybind11::module_& module);
void bind_message_queue(pybind11::module_& module);

}  // namespace ipc
