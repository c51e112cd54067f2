#pragma once

#include <pybind11/pybind11.h>

#include "handle.h"
#include "native/released_gil.h"

namespace ipc {

pybind11::memoryview view_of(Region region);

// For what takes the kernel, or the driver of a GPU, a while to give up.
template <typename T>
void close_without_gil(Handle<T>& handle) {
  auto object = handle.take();
  const native::ReleasedGil released;
  object.reset();
}

void bind_collective(pybind11::module_& module);
void bind_carriers(pybind11::module_& module);
void bind_gpus(pybind11::module_& module);
void bind_memory(pybind11::module_& module);
void bind_page_pool(pybind11::module_& module);
void bind_paged_buffer(pybind11::module_& module);
void bind_message_queue(pybind11::module_& module);

}  // namespace ipc
