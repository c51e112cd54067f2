#include "engines/nvdec/gpu.h"

namespace flashcodec {

using native::cuda::Address;
using native::cuda::CudaError;

namespace {

// Of memory that was given back.
constexpr size_t kMostFreeBytes = size_t{512} << 20;

uint8_t* pointer(Address address) {
  return reinterpret_cast<uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr): the driver's type
}

}  // namespace

Gpu::Gpu(int number) : context_(number), functions_(context_.driver().library()) {}

Gpu::~Gpu() {
  if (!driver().is_usable()) return;
  try {
    const auto now = current();
    for (const auto& [bytes, data] : free_) driver().mem_free.pointer(reinterpret_cast<Address>(data));
  } catch (const CudaError&) {  // the driver has shut down, and the memory is gone
  }
}

std::shared_ptr<uint8_t[]> Gpu::take(size_t bytes) {
  uint8_t* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = free_.find(bytes); found != free_.end()) {
      data = found->second;
      free_.erase(found);
      free_bytes_ -= bytes;
    }
  }
  if (data == nullptr) {
    const auto now = current();
    Address address = 0;
    driver().call(driver().mem_alloc, &address, bytes);
    data = pointer(address);
  }
  return {data, [self = shared_from_this(), bytes](uint8_t* done) { self->give_back(done, bytes); }};
}

void Gpu::give_back(uint8_t* data, size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (free_bytes_ + bytes <= kMostFreeBytes) {
      free_.emplace(bytes, data);
      free_bytes_ += bytes;
      return;
    }
  }
  try {
    const auto now = current();
    driver().mem_free.pointer(reinterpret_cast<Address>(data));
  } catch (const CudaError&) {  // the driver has shut down, and the memory is gone
  }
}

}  // namespace flashcodec
