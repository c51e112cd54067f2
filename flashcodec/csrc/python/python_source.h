// Sources that live in Python: buffers and file-like objects.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "source/source.h"

namespace flashcodec {

// Any contiguous bytes-like object; kept alive and unchanged in size as long as the source is.
SourcePtr open_buffer(const pybind11::object& bytes_like, std::string name);

// An object with read(size) and seek(offset, whence). Its calls hold the GIL and come one at a time.
SourcePtr open_file_like(pybind11::object file, std::string name);

// Throws what has interrupted a file-like object's calls, such as KeyboardInterrupt: errors of reading hide it.
void raise_interruption(Source& source);

}  // namespace flashcodec
