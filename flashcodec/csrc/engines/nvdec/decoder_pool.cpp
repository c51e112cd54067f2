#include "engines/nvdec/decoder_pool.h"

#include <algorithm>
#include <utility>

namespace flashcodec {

std::unique_ptr<HardwareDecoder> DecoderPool::take(const DecoderShape& shape) {
  if (std::unique_ptr<HardwareDecoder> found = find(shape)) {
    found->become(shape);
    return found;
  }
  try {
    return std::make_unique<HardwareDecoder>(gpu_, shape);
  } catch (const native::cuda::CudaError&) {
    if (drop_all().empty()) throw;
  }
  return std::make_unique<HardwareDecoder>(gpu_, shape);  // there may be memory for it now
}

std::unique_ptr<HardwareDecoder> DecoderPool::find(const DecoderShape& shape) {
  const std::lock_guard lock(mutex_);
  auto found = std::ranges::find_if(idle_, [&](const auto& decoder) { return decoder->shape() == shape; });
  if (found == idle_.end()) {
    found = std::ranges::find_if(idle_, [&](const auto& decoder) { return decoder->can_become(shape); });
  }
  if (found == idle_.end()) return nullptr;
  std::unique_ptr<HardwareDecoder> decoder = std::move(*found);
  idle_.erase(found);
  return decoder;
}

bool DecoderPool::is_warm() {
  const std::lock_guard lock(mutex_);
  return !idle_.empty();
}

void DecoderPool::give_back(std::unique_ptr<HardwareDecoder> decoder) {
  std::unique_ptr<HardwareDecoder> oldest;  // ends after the lock
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(decoder));
  if (idle_.size() <= limit_) return;
  oldest = std::move(idle_.front());
  idle_.pop_front();
}

DecoderPool::Idle DecoderPool::drop_all() {
  const std::lock_guard lock(mutex_);
  return std::exchange(idle_, {});
}

}  // namespace flashcodec
