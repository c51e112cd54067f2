// A segment of a request on its way: what is decoded of it, and where the frames go.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engines/segment_decoder.h"
#include "serving/request.h"

namespace flashcodec {

// The temporal groups of a segment while they fill up. A job can pause and be taken up by another engine.
class SegmentJob : private FrameSink {
 public:
  SegmentJob(RequestPtr request, Segment segment);

  const RequestPtr& request() const { return request_; }
  const Segment& segment() const { return segment_; }

  // Take the decoder, if none is there yet.
  void begin(std::unique_ptr<SegmentDecoder> decoder, int threads);
  bool begun() const { return decoder_ != nullptr; }
  // Return the backend of the decoder that it has begun with: only engines of that kind can go on.
  const Backend& backend() const { return decoder_->backend(); }
  // Decode and put out groups as the work of engine number `engine`; false if the outputs are full, or `yields` says
  // after a frame that others should go first: to be called again later.
  bool advance(GroupWriter& writer, int engine, const std::function<bool()>& yields);
  // Let go of the decoder; what is not put out yet is to be decoded anew by another one.
  void start_over();
  std::unique_ptr<SegmentDecoder> release_decoder() { return std::move(decoder_); }

 private:
  struct Slot {
    int64_t frame;
    int32_t place;  // in Request::frames()
  };
  struct Group {
    int missing = 0;
    bool damaged = false;
    std::shared_ptr<uint8_t[]> data;
    size_t bytes = 0;
  };

  void put(int64_t index, const Picture& picture, bool damaged) override;
  bool cancelled() const override;
  bool paused() const override { return request_->outputs().full() || (*yields_)(); }

  int32_t group_frames() const { return request_->layout().group_frames(); }
  std::span<const Slot> slots_of(int64_t frame) const;
  Group& group_of(const Slot& slot) { return groups_[(slot.place - segment_.first) / group_frames()]; }
  // Where the caller wants the group; null: in memory of its own.
  uint8_t* out_of(const Slot& slot, size_t group_bytes) const;
  Place place_of(const Slot& slot, size_t group_bytes);
  void write(std::span<const Slot> slots, const Picture& picture);
  void finish(const Slot& slot);
  Output output_of(const Slot& slot);
  void report_missing();

  const RequestPtr request_;
  const Segment segment_;
  std::vector<Slot> slots_;  // sorted by frame
  std::vector<Group> groups_;
  std::unique_ptr<SegmentDecoder> decoder_;
  GroupWriter* writer_ = nullptr;
  const std::function<bool()>* yields_ = nullptr;
  int engine_ = 0;
  Output::Clock::time_point since_;
};

}  // namespace flashcodec
