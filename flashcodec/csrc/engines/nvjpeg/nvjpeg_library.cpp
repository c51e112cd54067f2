#include "engines/nvjpeg/nvjpeg_library.h"

#include <dlfcn.h>

namespace flashcodec {

namespace {

// One that is loaded already is found by its name wherever it came from.
void* load() {
  for (const char* name : {"libnvjpeg.so.13", "libnvjpeg.so.12"}) {
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw native::cuda::CudaError(std::string("no nvJPEG here: ") + dlerror() + "; pip install nvidia-nvjpeg");
}

}  // namespace

const NvjpegLibrary& NvjpegLibrary::get() {
  static const NvjpegLibrary library(load());
  return library;
}

}  // namespace flashcodec
