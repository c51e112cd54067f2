#include "native/cuda/driver.h"

#include <dlfcn.h>
#include <unistd.h>

namespace native::cuda {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

// Stays loaded: what it started cannot be undone.
void* load() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw CudaError(std::string("no NVIDIA driver here: ") + ::dlerror());
  return library;
}

}  // namespace

void* find_function(void* library, const char* symbol) {
  void* function = ::dlsym(library, symbol);
  if (function != nullptr) return function;
  throw CudaError(std::string("the NVIDIA driver is too old: it has no ") + symbol +
                  "; install one of CUDA 11.4 or later");
}

Driver::Driver() : library_(load()), process_(::getpid()) { call(init_, 0U); }

const Driver& Driver::get() {
  static const Driver driver;
  if (!driver.is_usable()) {
    throw CudaError("process " + std::to_string(::getpid()) + " was forked from process " +
                    std::to_string(driver.process_) +
                    ", which had used CUDA, and cannot use it: fork before that, or start a new program");
  }
  return driver;
}

bool Driver::is_usable() const { return ::getpid() == process_; }

void Driver::check(const char* function, Result result) const {
  if (result == 0) return;
  const char* name = nullptr;
  const char* text = nullptr;
  get_error_name_.pointer(result, &name);
  get_error_string_.pointer(result, &text);
  throw CudaError(std::string(function) + ": " +
                  (name != nullptr ? std::string(name) : "CUDA error " + std::to_string(result)) +
                  (text != nullptr ? " (" + std::string(text) + ")" : ""));
}

}  // namespace native::cuda
