#include "device_memory.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "native/cuda/primary_context.h"

namespace ipc::cuda {
using native::cuda::Address;
using native::cuda::CudaError;
using native::cuda::Driver;
using native::cuda::kIpcLazyEnablePeerAccess;
using native::cuda::kOutOfMemory;
using native::cuda::PrimaryContext;
using native::cuda::Result;
namespace {

// Smaller allocations may share a block of this size, all of which an IPC handle would export (CUDA C++ Programming
// Guide, "Interprocess Communication").
constexpr std::uint64_t kBlock = std::uint64_t{2} << 20;

std::uint64_t whole_blocks(std::uint64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

CudaError no_space(const PrimaryContext& context, std::uint64_t size) {
  std::size_t free = 0, total = 0;
  context.driver().call(context.driver().mem_get_info, &free, &total);
  return CudaError("needs " + std::to_string(size) + " bytes, but cuda:" + std::to_string(context.gpu()) + " has " +
                   std::to_string(free) + " of its " + std::to_string(total) +
                   " bytes free; ask for less, or end what else uses that GPU");
}

}  // namespace

// Memory of a GPU in this process's address space: taken here, or opened.
class DeviceMemory::Mapping {
 public:
  Mapping(int gpu, std::uint64_t size) : Mapping(gpu, Origin::taken) {
    const auto& driver = context_.driver();
    const PrimaryContext::Current current(context_);
    const Result result = driver.mem_alloc.pointer(&address_, whole_blocks(size));
    if (result == kOutOfMemory) throw no_space(context_, whole_blocks(size));
    driver.check(driver.mem_alloc.name, result);
    driver.call(driver.memset_bytes, address_, 0, whole_blocks(size));
    driver.call(driver.context_synchronize);
  }

  explicit Mapping(const DeviceHandle& handle) : Mapping(handle.gpu, Origin::opened) {
    const PrimaryContext::Current current(context_);
    try {
      context_.driver().call(context_.driver().ipc_open_handle, &address_, handle.memory, kIpcLazyEnablePeerAccess);
    } catch (const CudaError& error) {
      throw CudaError(std::string(error.what()) +
                      "; its creator must still hold it, in this container or with the host's IPC namespace");
    }
  }

  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  ~Mapping() {
    if (address_ == 0) return;
    try {
      const PrimaryContext::Current current(context_);
      const auto& driver = context_.driver();
      (origin_ == Origin::taken ? driver.mem_free : driver.ipc_close_handle).pointer(address_);
    } catch (const CudaError&) {  // the driver has shut down, and the memory is gone
    }
  }

  DeviceHandle handle() const {
    const PrimaryContext::Current current(context_);
    DeviceHandle handle{context_.uuid(), {}};
    context_.driver().call(context_.driver().ipc_get_handle, &handle.memory, address_);
    return handle;
  }

  const PrimaryContext& context() const { return context_; }
  Address address() const { return address_; }

 private:
  enum class Origin : std::uint8_t { taken, opened };

  // Complete before memory is: the destructor runs if the rest of a construction fails.
  template <typename Gpu>
  Mapping(const Gpu& gpu, Origin origin) : context_(gpu), origin_(origin) {}

  PrimaryContext context_;
  Origin origin_;
  Address address_ = 0;
};

// All mappings of this process. Its lock is held while the driver opens and closes, as it must not do both at once for
// one handle.
class DeviceMemory::Mappings {
 public:
  // Never destroyed: when a process ends, the driver frees what is left, and is gone before this would be.
  static Mappings& of_this_process() {
    static auto* const mappings = new Mappings;  // NOLINT(cppcoreguidelines-owning-memory)
    return *mappings;
  }

  std::unique_ptr<DeviceMemory> add(std::unique_ptr<Mapping> mapping) {
    const auto handle = mapping->handle();
    const std::lock_guard lock(mutex_);
    auto& entry = by_handle_[handle];
    entry = {std::move(mapping), 1};
    return use(handle, entry);
  }

  std::unique_ptr<DeviceMemory> open(const DeviceHandle& handle) {
    const std::lock_guard lock(mutex_);
    const auto found = by_handle_.find(handle);
    if (found == by_handle_.end()) {
      auto& entry = by_handle_.emplace(handle, Entry{std::make_unique<Mapping>(handle), 1}).first->second;
      return use(handle, entry);
    }
    ++found->second.uses;
    return use(handle, found->second);
  }

  void release(const DeviceHandle& handle) {
    const std::lock_guard lock(mutex_);
    const auto found = by_handle_.find(handle);
    if (--found->second.uses == 0) by_handle_.erase(found);
  }

 private:
  struct Entry {
    std::unique_ptr<Mapping> mapping;
    std::size_t uses = 0;
  };

  static std::unique_ptr<DeviceMemory> use(const DeviceHandle& handle, const Entry& entry) {
    return std::unique_ptr<DeviceMemory>(new DeviceMemory(handle, *entry.mapping));
  }

  std::mutex mutex_;
  std::map<DeviceHandle, Entry> by_handle_;
};

std::unique_ptr<DeviceMemory> DeviceMemory::allocate(int gpu, std::uint64_t size) {
  return Mappings::of_this_process().add(std::make_unique<Mapping>(gpu, size));
}

std::unique_ptr<DeviceMemory> DeviceMemory::open(const DeviceHandle& handle) {
  Driver::get();  // throws in a fork, whose copy of the lock may be held for ever
  return Mappings::of_this_process().open(handle);
}

DeviceMemory::~DeviceMemory() {
  // In a fork nothing is given up, and its copy of the lock may be held for ever.
  if (mapping_.context().driver().is_usable()) Mappings::of_this_process().release(handle_);
}

int DeviceMemory::gpu() const { return mapping_.context().gpu(); }

void* DeviceMemory::address() const {
  return reinterpret_cast<void*>(mapping_.address());  // NOLINT(performance-no-int-to-ptr): the driver's type
}

void DeviceMemory::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  const auto& driver = Driver::get();
  const PrimaryContext::Current current(mapping_.context());
  driver.call(driver.copy_to_host, bytes.data(), mapping_.address() + offset, bytes.size());
}

void DeviceMemory::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const auto& driver = Driver::get();
  const PrimaryContext::Current current(mapping_.context());
  driver.call(driver.copy_to_device, mapping_.address() + offset, bytes.data(), bytes.size());
  driver.call(driver.context_synchronize);  // bytes that are not pinned may still be on their way
}

}  // namespace ipc::cuda
