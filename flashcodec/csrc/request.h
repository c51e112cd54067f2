// One decoding request: a list of frames of one stream, in one layout.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bitstream.h"
#include "frame_writer.h"
#include "layout.h"
#include "output_queue.h"
#include "plan.h"
#include "segment_decoder.h"

namespace flashcodec {

class Request {
 public:
  // `out` is where group i goes, at i * layout.group_bytes(), or null: then each group brings memory of its own.
  Request(BitstreamPtr stream, const std::vector<int64_t>& frames, Layout layout, std::shared_ptr<OutputQueue> outputs,
          uint8_t* out);

  uint64_t id() const { return id_; }
  const BitstreamPtr& stream() const { return stream_; }
  const Layout& layout() const { return layout_; }
  const OutputQueue& outputs() const { return *outputs_; }

  std::vector<Segment> plan(int engines) const;
  // Decodes one segment and puts out its groups, as the work of engine number `engine`. A failure ends the whole
  // request.
  void decode(const Segment& segment, SegmentDecoder& decoder, FrameWriter& writer, int engine);
  void fail(const DecodeError& error);

  // Ends the request; what is put out afterwards is dropped.
  void stop();
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

 private:
  class Groups;

  void order_groups(const std::vector<int64_t>& frames);
  void put(Output output);

  const uint64_t id_;
  const BitstreamPtr stream_;
  const int32_t count_;
  const Layout layout_;
  // The temporal groups sorted by their first frames, so that neighbours share GOPs: which group of the caller's
  // each is, and all their frames. The last frame of the list pads its group.
  std::vector<int32_t> order_;
  std::vector<int64_t> frames_;
  const std::shared_ptr<OutputQueue> outputs_;
  uint8_t* const out_;
  std::mutex mutex_;  // orders put, fail and stop
  int32_t groups_left_;
  std::atomic<bool> stopped_ = false;
};

using RequestPtr = std::shared_ptr<Request>;

}  // namespace flashcodec
