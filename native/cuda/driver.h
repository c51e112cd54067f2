#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace native::cuda {

struct CudaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The driver's types, as its ABI has them (CUDA Driver API reference): no header of CUDA's is needed to build.
using Result = int;
using Device = int;
using Context = void*;
using Address = unsigned long long;

struct Uuid {
  std::array<unsigned char, 16> bytes;

  bool operator==(const Uuid&) const = default;
};

struct IpcHandle {
  std::array<unsigned char, 64> bytes;
};

constexpr Result kOutOfMemory = 2;
constexpr unsigned kIpcLazyEnablePeerAccess = 1;
constexpr unsigned kHostRegisterPortable = 1;
constexpr int kMultiprocessors = 16;
constexpr int kComputeMode = 20;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

// Throws CudaError if the library, one of the driver's, has no such function.
void* find_function(void* library, const char* symbol);

// A function of the driver's libraries, found by its exported name.
template <typename... Arguments>
struct Function {
  Function(void* library, const char* symbol)
      : name(symbol), pointer(reinterpret_cast<Result (*)(Arguments...)>(find_function(library, symbol))) {}

  const char* name;
  Result (*pointer)(Arguments...);
};

// libcuda.so.1, loaded and initialised when it is first needed: what is built and imported does without.
class Driver {
 public:
  // Throws CudaError where there is no driver, no GPU or too old a driver, and in a fork of the process that loaded it.
  static const Driver& get();

  // False in a fork of the process that loaded it: CUDA does not survive one, and must not even be told to free.
  bool is_usable() const;

  // To find more functions in.
  void* library() const { return library_; }

  // Calls a function; throws CudaError if it fails.
  template <typename... Arguments>
  void call(const Function<Arguments...>& function, std::type_identity_t<Arguments>... arguments) const {
    check(function.name, function.pointer(arguments...));
  }
  void check(const char* function, Result result) const;

 private:
  void* library_;
  pid_t process_;
  Function<Result, const char**> get_error_name_{library_, "cuGetErrorName"};
  Function<Result, const char**> get_error_string_{library_, "cuGetErrorString"};
  Function<unsigned> init_{library_, "cuInit"};

 public:
  Function<int*> driver_get_version{library_, "cuDriverGetVersion"};
  Function<int*> device_get_count{library_, "cuDeviceGetCount"};
  Function<Device*, int> device_get{library_, "cuDeviceGet"};
  Function<Uuid*, Device> device_get_uuid{library_, "cuDeviceGetUuid_v2"};
  Function<char*, int, Device> device_get_name{library_, "cuDeviceGetName"};
  Function<int*, int, Device> device_get_attribute{library_, "cuDeviceGetAttribute"};
  Function<std::size_t*, Device> device_total_mem{library_, "cuDeviceTotalMem_v2"};
  Function<Context*, Device> primary_context_retain{library_, "cuDevicePrimaryCtxRetain"};
  Function<Device> primary_context_release{library_, "cuDevicePrimaryCtxRelease_v2"};
  Function<Context> context_push{library_, "cuCtxPushCurrent_v2"};
  Function<Context*> context_pop{library_, "cuCtxPopCurrent_v2"};
  Function<> context_synchronize{library_, "cuCtxSynchronize"};
  Function<std::size_t*, std::size_t*> mem_get_info{library_, "cuMemGetInfo_v2"};
  Function<Address*, std::size_t> mem_alloc{library_, "cuMemAlloc_v2"};
  Function<Address> mem_free{library_, "cuMemFree_v2"};
  Function<Address, unsigned char, std::size_t> memset_bytes{library_, "cuMemsetD8_v2"};
  Function<Address, const void*, std::size_t> copy_to_device{library_, "cuMemcpyHtoD_v2"};
  Function<void*, Address, std::size_t> copy_to_host{library_, "cuMemcpyDtoH_v2"};
  Function<IpcHandle*, Address> ipc_get_handle{library_, "cuIpcGetMemHandle"};
  Function<Address*, IpcHandle, unsigned> ipc_open_handle{library_, "cuIpcOpenMemHandle_v2"};
  Function<Address> ipc_close_handle{library_, "cuIpcCloseMemHandle"};
  Function<void*, std::size_t, unsigned> host_register{library_, "cuMemHostRegister_v2"};
  Function<void*> host_unregister{library_, "cuMemHostUnregister"};

 private:
  Driver();
};

}  // namespace native::cuda
