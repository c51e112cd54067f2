#include "engines/nvdec/cuvid_library.h"

#include <dlfcn.h>

#include <string>

namespace flashcodec {

namespace {

constexpr char kLibrary[] = "libnvcuvid.so.1";

// Stays loaded, as the driver does.
void* load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  throw native::cuda::CudaError(std::string("NVDEC cannot be used, for its library cannot be loaded (") + dlerror() +
                                "): in a container, NVIDIA_DRIVER_CAPABILITIES must have 'video'");
}

}  // namespace

const CuvidLibrary& CuvidLibrary::get() {
  static const CuvidLibrary library(load());
  return library;
}

}  // namespace flashcodec
