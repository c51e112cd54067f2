// A caller's requests on a scheduler, and their outputs.
#pragma once

#include <mutex>
#include <unordered_map>

#include "serving/scheduler.h"

namespace flashcodec {

class Session {
 public:
  // Decoding pauses while `output_limit` bytes of outputs wait to be taken.
  Session(std::shared_ptr<Scheduler> scheduler, size_t output_limit);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Throws std::out_of_range for a frame that is not there, std::invalid_argument for a layout that cannot be.
  // `out`: see Request.
  uint64_t add(BitstreamPtr stream, const std::vector<int64_t>& frames, Layout layout, RequestOptions options,
               uint8_t* out);
  std::optional<Output> take(std::chrono::duration<double> timeout);
  // Unknown and finished requests are ignored, as by cancel().
  void set_turn(uint64_t request, Output::Clock::time_point turn);
  // No output of the request comes after this.
  void cancel(uint64_t request);
  void cancel_all();

 private:
  std::shared_ptr<Scheduler> scheduler_;
  std::shared_ptr<OutputQueue> outputs_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, RequestPtr> requests_;
};

}  // namespace flashcodec
