// One decoding request: a list of frames of one stream, in one layout.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "bitstream/bitstream.h"
#include "pixels/layout.h"
#include "plan/plan.h"
#include "serving/output_queue.h"
#include "source/source_limits.h"

namespace flashcodec {

// Which kinds of engines may decode.
enum class DecodeOn { kFastest, kCores, kGpu };

struct RequestOptions {
  int priority = 0;                               // higher goes first
  std::optional<Output::Clock::time_point> turn;  // among those of a priority the earliest; none: see Scheduler
  bool fast = false;                              // see SegmentDecoder::begin
  DecodeOn decode_on = DecodeOn::kFastest;
  bool report = false;         // frames that are damaged or missing are reported one by one and do not end the request
  std::optional<uint64_t> id;  // one of Request::next_id(); none: the next one
};

class Request {
 public:
  // Return a number that no other request of the process has.
  static uint64_t next_id();

  // `out` is where group i goes, at i * layout.group_bytes(), or null: then each group brings memory of its own.
  Request(BitstreamPtr stream, const std::vector<int64_t>& frames, Layout layout, RequestOptions options,
          std::shared_ptr<OutputQueue> outputs, uint8_t* out);

  uint64_t id() const { return id_; }
  const BitstreamPtr& stream() const { return stream_; }
  const Layout& layout() const { return layout_; }
  const RequestOptions& options() const { return options_; }
  const OutputQueue& outputs() const { return *outputs_; }
  uint8_t* out() const { return out_; }

  // Groups are decoded in the order of their first frames: the frames in that order, whole groups (the last frame of
  // the caller's list pads its group), and which group of the caller's the one at `place` of it is.
  const std::vector<int64_t>& frames() const { return frames_; }
  int32_t group_at(int32_t place) const { return order_[place / layout_.group_frames()]; }
  int32_t count() const { return count_; }

  std::vector<Run> runs() const { return find_runs(*stream_, frames_); }
  std::vector<Segment> plan(int engines) const;

  // Puts out one group, or what became of it. An error ends the request unless it wants a report.
  void put(Output output);
  void fail(const DecodeError& error);

  // Ends the request; what is put out afterwards is dropped, and `out` is the caller's again.
  void stop();
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  // To be held while a frame is written, and followed by a look at stopped(): then `out` may be gone.
  std::shared_lock<std::shared_mutex> writing() { return std::shared_lock(writing_); }

  // To be called before decoding and then now and again: fails the request once it has taken longer than allowed.
  void check_time();

 private:
  void order_groups(const std::vector<int64_t>& frames);
  // Returns once nothing is being written any more.
  void end();

  const uint64_t id_;
  const BitstreamPtr stream_;
  const int32_t count_;
  const Layout layout_;
  const RequestOptions options_;
  std::vector<int32_t> order_;
  std::vector<int64_t> frames_;
  const std::shared_ptr<OutputQueue> outputs_;
  uint8_t* const out_;
  std::mutex mutex_;  // orders put, fail and stop
  int32_t groups_left_;
  std::once_flag began_;
  Deadline deadline_;  // from then on
  std::atomic<bool> stopped_ = false;
  std::shared_mutex writing_;
};

using RequestPtr = std::shared_ptr<Request>;

}  // namespace flashcodec
