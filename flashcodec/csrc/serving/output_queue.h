// Finished outputs on their way to the caller.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "source/decode_error.h"

namespace flashcodec {

// One temporal group of a request: places [first, first + count) of its frame list. The bytes are here, or
// already where the caller wanted them (`data` is null). `began` and `ended` are when engine `engine` worked on it, by
// the system-wide monotonic clock. `damaged`: FFmpeg concealed errors in it, or in what it may refer to.
struct Output {
  using Clock = std::chrono::steady_clock;
  uint64_t request = 0;
  int32_t first = 0;
  int32_t count = 0;
  std::shared_ptr<uint8_t[]> data;
  size_t bytes = 0;
  std::optional<int> gpu;  // in whose memory they are
  int32_t engine = 0;
  bool decoded_on_gpu = false;
  Clock::time_point began{};
  Clock::time_point ended{};
  bool damaged = false;
  bool done = false;  // the last of its request
  std::optional<DecodeError> error;
};

class OutputQueue {
 public:
  // Decoding pauses while `full_bytes` wait to be taken.
  explicit OutputQueue(size_t full_bytes) : full_bytes_(full_bytes) {}

  void put(Output output);
  // The oldest output, or nothing if none comes in time.
  std::optional<Output> take(std::chrono::duration<double> timeout);
  // Drops what is there of a request.
  void drop(uint64_t request);
  bool full() const;

 private:
  const size_t full_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Output> outputs_;
  size_t bytes_ = 0;
};

}  // namespace flashcodec
