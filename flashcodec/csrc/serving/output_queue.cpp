#include "serving/output_queue.h"

#include <algorithm>
#include <utility>

namespace flashcodec {

void OutputQueue::put(Output output) {
  {
    const std::lock_guard lock(mutex_);
    bytes_ += output.bytes;
    outputs_.push_back(std::move(output));
  }
  ready_.notify_one();
}

std::optional<Output> OutputQueue::take(std::chrono::duration<double> timeout) {
  std::unique_lock lock(mutex_);
  if (!ready_.wait_for(lock, timeout, [this] { return !outputs_.empty(); })) return std::nullopt;
  Output output = std::move(outputs_.front());
  outputs_.pop_front();
  bytes_ -= output.bytes;
  return output;
}

void OutputQueue::drop(uint64_t request) {
  const std::lock_guard lock(mutex_);
  std::erase_if(outputs_, [&](const Output& output) {
    if (output.request != request) return false;
    bytes_ -= output.bytes;
    return true;
  });
}

bool OutputQueue::full() const {
  const std::lock_guard lock(mutex_);
  return bytes_ >= full_bytes_;
}

}  // namespace flashcodec
