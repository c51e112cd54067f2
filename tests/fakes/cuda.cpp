// A stand-in for libcuda: GPUs whose memory is files in $FAKE_CUDA_FOLDER, so that processes can share it as they share
// a GPU's. It is strict where the real one is: calls need a context that is current in their thread, nothing works in a
// fork, a handle is opened once and never by its exporter, and memory goes with the process that took it. A process
// that may not use sockets (cuda_sockets.h) cannot use CUDA. Work is done as late as the real one may do it
// (cuda_streams.h).
//
// $FAKE_CUDA_GPUS names the machine's GPUs, a letter each, of which a process sees some (cuda_devices.h); they are no
// peers if $FAKE_CUDA_NO_PEERS is set. Each has $FAKE_CUDA_MEMORY bytes, and the compute capability
// $FAKE_CUDA_CAPABILITY. $FAKE_CUDA_DRIVER is the driver's CUDA version, as the driver writes it. $FAKE_CUDA_FAULT
// names a call that fails, or "crash", "hang", "no device" or "private copy".
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_devices.h"
#include "cuda_memory.h"
#include "cuda_sockets.h"
#include "cuda_streams.h"

namespace {

enum Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kMapFailed = 205,
  kPeerAccessUnsupported = 217,
  kAlreadyMapped = 208,
  kOperatingSystem = 304,
  kInvalidHandle = 400,
  kNotSupported = 801
};

enum Attribute { kMultiprocessors = 16, kComputeMode = 20, kCapabilityMajor = 75, kCapabilityMinor = 76 };

using Address = unsigned long long;

struct IpcHandle {
  std::array<char, 64> name;
};

struct Context {
  char gpu = 0;
  int retained = 0;
  std::string peers{};  // whose memory its kernels may touch
};

struct Block {
  std::string name;  // of its file
  std::size_t size = 0;
  bool opened = false;  // another process took it
};

std::mutex lock;
pid_t initialised_by = 0;
std::map<int, Context> contexts;
std::map<Address, Block> blocks;
std::set<void*> registered;
thread_local std::vector<Context*> stack;

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

bool fault(std::string_view call) { return variable("FAKE_CUDA_FAULT", "") == call; }
std::string gpus() { return fault("no device") ? "" : fake_cuda::visible_gpus(variable("FAKE_CUDA_GPUS", "A")); }
std::size_t memory_of_a_gpu() { return std::stoull(variable("FAKE_CUDA_MEMORY", "85899345920")); }
std::string capability() { return variable("FAKE_CUDA_CAPABILITY", "9.0"); }
std::filesystem::path folder() { return variable("FAKE_CUDA_FOLDER", "/nonexistent"); }

bool is_ready() { return initialised_by == ::getpid(); }

Context* current() { return stack.empty() || stack.back() == nullptr ? nullptr : stack.back(); }

Result state() { return !is_ready() ? kNotInitialized : current() == nullptr ? kInvalidContext : kSuccess; }

// A block's file is memory-<gpu>-<pid>-<number>.
pid_t owner_of(std::string_view name) {
  pid_t owner = 0;
  const auto digits = name.substr(std::strlen("memory-A-"));
  std::from_chars(digits.data(), digits.data() + digits.size(), owner);
  return owner;
}

char gpu_of(std::string_view name) { return name[std::strlen("memory-")]; }

// What lies in this process's mappings from `address` on; none if it is not there whole.
const Block* block_at(Address address, std::size_t size) {
  const auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return nullptr;
  const auto& [base, block] = *std::prev(after);
  return address + size <= base + block.size ? &block : nullptr;
}

bool is_alive(std::string_view name) {
  const pid_t owner = owner_of(name);
  return owner > 0 && (::kill(owner, 0) == 0 || errno == EPERM);
}

std::size_t used_bytes(char gpu) {
  std::size_t used = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder())) {
    const auto name = file.path().filename().string();
    if (name.starts_with(std::string("memory-") + gpu + '-') && is_alive(name)) used += file.file_size();
  }
  return used;
}

void* map(const std::string& name, std::size_t size, int creation, int sharing) {
  const int file = ::open((folder() / name).c_str(), O_RDWR | creation, 0600);
  if (file < 0) return MAP_FAILED;
  void* base = ::ftruncate(file, static_cast<off_t>(size)) != 0
                   ? MAP_FAILED
                   : ::mmap(nullptr, size, PROT_READ | PROT_WRITE, sharing, file, 0);
  ::close(file);
  return base;
}

Result add(Address* address, void* base, Block block) {
  if (base == MAP_FAILED) return kMapFailed;
  *address = reinterpret_cast<Address>(base);
  blocks[*address] = std::move(block);
  return kSuccess;
}

Result remove(Address address, bool opened) {
  const std::lock_guard held(lock);
  if (state() != kSuccess) return state();
  const auto found = blocks.find(address);
  if (found == blocks.end() || found->second.opened != opened) return kInvalidValue;
  ::munmap(reinterpret_cast<void*>(address), found->second.size);
  if (!opened) std::filesystem::remove(folder() / found->second.name);
  blocks.erase(found);
  return kSuccess;
}

// A client of MPS is known to its daemon: here, by a file in the pipe folder.
void register_mps_client() {
  const auto pipes = variable("CUDA_MPS_PIPE_DIRECTORY", "");
  if (pipes.empty() || fault("register")) return;
  ::close(::open((pipes + "/client-" + std::to_string(::getpid())).c_str(), O_CREAT | O_WRONLY, 0600));
}

const char* name_of(int error) {
  switch (error) {
    case kInvalidValue:
      return "CUDA_ERROR_INVALID_VALUE";
    case kOutOfMemory:
      return "CUDA_ERROR_OUT_OF_MEMORY";
    case kNotInitialized:
      return "CUDA_ERROR_NOT_INITIALIZED";
    case kNoDevice:
      return "CUDA_ERROR_NO_DEVICE";
    case kInvalidContext:
      return "CUDA_ERROR_INVALID_CONTEXT";
    case kPeerAccessUnsupported:
      return "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED";
    case kAlreadyMapped:
      return "CUDA_ERROR_ALREADY_MAPPED";
    case kOperatingSystem:
      return "CUDA_ERROR_OPERATING_SYSTEM";
    case kInvalidHandle:
      return "CUDA_ERROR_INVALID_HANDLE";
    case kNotSupported:
      return "CUDA_ERROR_NOT_SUPPORTED";
    default:
      return nullptr;
  }
}

}  // namespace

namespace fake_cuda {

bool reaches(const void* address) {
  const std::lock_guard held(lock);
  const Block* block = block_at(reinterpret_cast<Address>(address), 1);
  if (block == nullptr) return true;  // nothing that a GPU has
  const char gpu = gpu_of(block->name);
  return gpu == current()->gpu || current()->peers.find(gpu) != std::string::npos;
}

}  // namespace fake_cuda

extern "C" {

// How much this process holds: contexts, each as often as it is retained, memory, registrations, streams and events.
int fake_cuda_live() {
  const std::lock_guard held(lock);
  int live = static_cast<int>(blocks.size() + registered.size()) + fake_cuda::live_streams();
  for (const auto& [device, context] : contexts) live += context.retained;
  return live;
}

int cuInit(unsigned flags) {
  if (fault("crash")) std::abort();
  if (fault("hang")) ::pause();
  if (initialised_by != 0 && !is_ready()) return kNotInitialized;
  register_mps_client();
  if (flags != 0) return kInvalidValue;
  if (fault("cuInit")) return kNoDevice;
  if (!fake_cuda::serve_peers()) return kOperatingSystem;
  initialised_by = ::getpid();
  return kSuccess;
}

int cuGetErrorName(int error, const char** name) {
  *name = name_of(error);
  return *name == nullptr ? kInvalidValue : kSuccess;
}

int cuGetErrorString(int error, const char** text) {
  *text = name_of(error) == nullptr ? nullptr : "as the stand-in says";
  return *text == nullptr ? kInvalidValue : kSuccess;
}

int cuDriverGetVersion(int* version) { return *version = std::stoi(variable("FAKE_CUDA_DRIVER", "13020")), kSuccess; }
int cuDeviceGetCount(int* count) { return *count = static_cast<int>(gpus().size()), kSuccess; }

int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= static_cast<int>(gpus().size())) return kInvalidDevice;
  return *device = ordinal, kSuccess;
}

int cuDeviceGetName(char* name, int length, int device) {
  std::snprintf(name, static_cast<std::size_t>(length), "Fake GPU %d", device);
  return kSuccess;
}

#ifndef FAKE_CUDA_IS_OLD
int cuDeviceGetUuid_v2(std::array<char, 16>* uuid, int device) {
  uuid->fill(gpus().at(static_cast<std::size_t>(device)));
  return kSuccess;
}
#endif

int cuDeviceTotalMem_v2(std::size_t* size, int /*device*/) { return *size = memory_of_a_gpu(), kSuccess; }

int cuDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  const auto dot = capability().find('.');
  switch (attribute) {
    case kMultiprocessors:
      return *value = 132, kSuccess;
    case kComputeMode:
      return *value = 0, kSuccess;
    case kCapabilityMajor:
      return *value = std::stoi(capability().substr(0, dot)), kSuccess;
    case kCapabilityMinor:
      return *value = std::stoi(capability().substr(dot + 1)), kSuccess;
    default:
      return kInvalidValue;
  }
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  const std::lock_guard held(lock);
  if (!is_ready()) return kNotInitialized;
  auto& retained = contexts[device];
  retained.gpu = gpus().at(static_cast<std::size_t>(device));
  ++retained.retained;
  return *context = &retained, kSuccess;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  const std::lock_guard held(lock);
  if (!is_ready()) return kNotInitialized;
  return contexts[device].retained-- > 0 ? kSuccess : kInvalidContext;
}

int cuCtxPushCurrent_v2(void* context) {
  if (!is_ready()) std::abort();  // a fork that does as if it could use what it has inherited
  return stack.push_back(static_cast<Context*>(context)), kSuccess;
}

int cuCtxPopCurrent_v2(void** context) {
  if (stack.empty()) return kInvalidContext;
  *context = stack.back();
  return stack.pop_back(), kSuccess;
}

int cuCtxSetCurrent(void* context) {
  stack = {static_cast<Context*>(context)};
  return kSuccess;
}

int cuCtxGetCurrent(void** context) {
  *context = current();
  return is_ready() ? kSuccess : kNotInitialized;
}

int cuCtxSynchronize() {
  if (state() == kSuccess) fake_cuda::finish_all();
  return state();
}

int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  if (state() != kSuccess) return state();
  *total = memory_of_a_gpu();
  *free = *total - std::min(*total, used_bytes(current()->gpu));
  return kSuccess;
}

int cuMemAlloc_v2(Address* address, std::size_t size) {
  const std::lock_guard held(lock);
  if (state() != kSuccess) return state();
  if (used_bytes(current()->gpu) + size > memory_of_a_gpu()) return kOutOfMemory;
  static int number = 0;
  const auto name =
      std::string("memory-") + current()->gpu + '-' + std::to_string(::getpid()) + '-' + std::to_string(number++);
  void* base = map(name, size, O_CREAT, MAP_SHARED);
  if (base != MAP_FAILED) std::memset(base, 0xAB, std::min(size, std::size_t{4096}));  // as found
  return add(address, base, {name, size, false});
}

// Waits for all work, as the real one does.
int cuMemFree_v2(Address address) {
  if (state() == kSuccess) fake_cuda::finish_all();
  return remove(address, false);
}

int cuMemsetD8_v2(Address address, unsigned char value, std::size_t count) {
  if (state() == kSuccess) {
    fake_cuda::give(nullptr, [=] { std::memset(reinterpret_cast<void*>(address), value, count); });
  }
  return state();
}

int cuMemsetD32_v2(Address address, unsigned word, std::size_t count) {
  if (fault("cuMemsetD32_v2")) return kNotSupported;
  if (state() == kSuccess) {
    fake_cuda::give(nullptr, [=] { std::fill_n(reinterpret_cast<unsigned*>(address), count, word); });
  }
  return state();
}

// As from memory that is not page-locked: it returns once the bytes are on their way.
int cuMemcpyHtoD_v2(Address to, const void* from, std::size_t size) {
  if (state() != kSuccess) return state();
  fake_cuda::finish(nullptr);
  const auto* bytes = static_cast<const char*>(from);
  fake_cuda::give(nullptr, [to, sent = std::vector<char>(bytes, bytes + size)] {
    std::memcpy(reinterpret_cast<void*>(to), sent.data(), sent.size());
  });
  return kSuccess;
}

int cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t size, void* stream) {
  if (state() == kSuccess) {
    fake_cuda::give(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), from, size); });
  }
  return state();
}

int cuMemcpyDtoH_v2(void* to, Address from, std::size_t size) {
  if (state() != kSuccess) return state();
  fake_cuda::finish(nullptr);
  std::memcpy(to, reinterpret_cast<const void*>(from), size);
  return kSuccess;
}

// From device memory to device memory, as all addresses are of one space, be they peers or not; the stream may be of
// another context.
int cuMemcpyAsync(Address to, Address from, std::size_t size, void* stream) {
  if (fault("cuMemcpyAsync")) return kNotSupported;
  {
    const std::lock_guard held(lock);
    if (block_at(to, size) == nullptr || block_at(from, size) == nullptr) return kInvalidValue;
  }
  if (state() == kSuccess) {
    fake_cuda::give(stream,
                    [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size); });
  }
  return state();
}

int cuIpcGetMemHandle(IpcHandle* handle, Address address) {
  const std::lock_guard held(lock);
  if (state() != kSuccess) return state();
  const auto found = blocks.find(address);
  if (found == blocks.end() || found->second.opened) return kInvalidValue;
  handle->name.fill(0);
  std::copy(found->second.name.begin(), found->second.name.end(), handle->name.begin());
  return kSuccess;
}

// By value, as the real one: a handle that arrives damaged names no file.
int cuIpcOpenMemHandle_v2(Address* address, IpcHandle handle, unsigned flags) {
  const std::lock_guard held(lock);
  if (fault("cuIpcOpenMemHandle_v2") || flags != 1) return kNotSupported;
  if (state() != kSuccess) return state();
  const std::string name(handle.name.data());
  if (gpu_of(name) != current()->gpu) {
    if (!variable("FAKE_CUDA_NO_PEERS", "").empty()) return kPeerAccessUnsupported;
    current()->peers += gpu_of(name);
  }
  for (const auto& [base, block] : blocks) {
    if (block.name == name) return block.opened ? kAlreadyMapped : kInvalidContext;
  }
  struct stat status {};
  if (::stat((folder() / name).c_str(), &status) != 0 || !is_alive(name)) return kInvalidHandle;
  if (!fake_cuda::take_descriptor_of(owner_of(name))) return kOperatingSystem;
  const auto size = static_cast<std::size_t>(status.st_size);
  return add(address, map(name, size, 0, fault("private copy") ? MAP_PRIVATE : MAP_SHARED), {name, size, true});
}

int cuIpcCloseMemHandle(Address address) { return remove(address, true); }

int cuMemHostRegister_v2(void* address, std::size_t /*size*/, unsigned /*flags*/) {
  const std::lock_guard held(lock);
  if (state() != kSuccess) return state();
  return registered.insert(address).second ? kSuccess : kInvalidValue;
}

int cuMemHostUnregister(void* address) {
  const std::lock_guard held(lock);
  if (state() != kSuccess) return state();
  return registered.erase(address) == 1 ? kSuccess : kInvalidValue;
}

}  // extern "C"
