#include "engines/nvdec/gpu.h"

#include <algorithm>

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
    for (const auto& [bytes, block] : free_) release(block);
  } catch (const CudaError&) {  // the driver has shut down, and the memory is gone
  }
}

std::shared_ptr<uint8_t[]> Gpu::take(size_t bytes) {
  const auto now = current();
  const std::optional<Block> found = find(bytes);
  const Block block = found ? *found : allocate(bytes);
  return {block.data, [self = shared_from_this(), block, bytes](uint8_t*) { self->give_back(block, bytes); }};
}

// Of what was given back, what nothing uses any more.
std::optional<Gpu::Block> Gpu::find(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = free_.equal_range(bytes);
  const auto found = std::find_if(
      first, last, [&](const auto& entry) { return functions_.event_query.pointer(entry.second.idle) == 0; });
  if (found == last) return std::nullopt;
  const Block block = found->second;
  free_.erase(found);
  free_bytes_ -= bytes;
  return block;
}

Gpu::Block Gpu::allocate(size_t bytes) const {
  Address address = 0;
  driver().call(driver().mem_alloc, &address, bytes);
  Block block{.data = pointer(address)};
  try {
    driver().call(functions_.event_create, &block.idle, kNoTiming);
  } catch (const CudaError&) {
    driver().mem_free.pointer(address);
    throw;
  }
  return block;
}

void Gpu::give_back(Block block, size_t bytes) {
  if (!driver().is_usable()) return;
  try {
    const auto now = current();
    const bool recorded = functions_.event_record.pointer(block.idle, nullptr) == 0;
    {
      const std::lock_guard lock(mutex_);
      if (recorded && free_bytes_ + bytes <= kMostFreeBytes) {
        free_.emplace(bytes, block);
        free_bytes_ += bytes;
        return;
      }
    }
    release(block);
  } catch (const CudaError&) {  // the driver has shut down, and the memory is gone
  }
}

void Gpu::release(Block block) const {
  driver().mem_free.pointer(reinterpret_cast<Address>(block.data));
  functions_.event_destroy.pointer(block.idle);
}

}  // namespace flashcodec
