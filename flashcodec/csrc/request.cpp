#include "request.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace flashcodec {

namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

}  // namespace

// The temporal groups of a segment while they fill up.
class Request::Groups : public FrameSink {
 public:
  Groups(Request& request, const Segment& segment, FrameWriter& writer, int engine)
      : request_(request), segment_(segment), writer_(writer), engine_(engine), size_(request.layout_.group_frames()) {
    for (int32_t place = segment.first; place < segment.last; ++place)
      slots_.push_back({request.frames_[place], place});
    std::sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.frame < b.frame; });
    groups_.resize((segment.last - segment.first) / size_);
    for (Group& group : groups_) group.missing = size_;
  }

  std::vector<int64_t> wanted() const {
    std::vector<int64_t> frames;
    for (const Slot& slot : slots_) {
      if (frames.empty() || frames.back() != slot.frame) frames.push_back(slot.frame);
    }
    return frames;
  }

  void put(int64_t index, const AVFrame& frame) override {
    const auto [begin, end] = std::equal_range(slots_.begin(), slots_.end(), Slot{index, 0},
                                               [](const Slot& a, const Slot& b) { return a.frame < b.frame; });
    if (request_.layout_.kind == LayoutKind::kRaw) {
      for (auto slot = begin; slot != end; ++slot) write_raw(frame, memory_of(group_of(*slot), raw_bytes(frame)));
    } else {
      std::vector<Place> places;
      for (auto slot = begin; slot != end; ++slot) {
        places.push_back({destination(*slot), (slot->place - segment_.first) % size_});
      }
      writer_.write(frame, request_.stream_->quarter_turns(), request_.layout_, places);
    }
    for (auto slot = begin; slot != end; ++slot) {
      if (--group_of(*slot).missing == 0) finish(*slot);
    }
  }

  bool cancelled() const override { return request_.stopped(); }

 private:
  struct Slot {
    int64_t frame;
    int32_t place;  // in Request::frames_
  };
  struct Group {
    int missing = 0;
    std::unique_ptr<uint8_t[]> data;
    size_t bytes = 0;
  };

  Group& group_of(const Slot& slot) { return groups_[(slot.place - segment_.first) / size_]; }

  static std::span<uint8_t> memory_of(Group& group, size_t bytes) {
    if (group.data == nullptr) {
      group.data = std::make_unique_for_overwrite<uint8_t[]>(bytes);
      group.bytes = bytes;
    }
    return {group.data.get(), group.bytes};
  }

  uint8_t* destination(const Slot& slot) {
    const size_t bytes = request_.layout_.group_bytes();
    if (request_.out_ != nullptr) return request_.out_ + bytes * request_.order_[slot.place / size_];
    return memory_of(group_of(slot), bytes).data();
  }

  void finish(const Slot& slot) {
    Group& group = group_of(slot);
    Output output;
    output.request = request_.id_;
    output.first = request_.order_[slot.place / size_] * size_;
    output.count = std::min(size_, request_.count_ - output.first);
    output.data = std::move(group.data);
    output.bytes = group.bytes;
    output.engine = engine_;
    output.began = since_;
    output.ended = since_ = Output::Clock::now();
    request_.put(std::move(output));
  }

  Request& request_;
  const Segment& segment_;
  FrameWriter& writer_;
  const int engine_;
  const int32_t size_;
  Output::Clock::time_point since_ = Output::Clock::now();
  std::vector<Slot> slots_;
  std::vector<Group> groups_;
};

Request::Request(BitstreamPtr stream, const std::vector<int64_t>& frames, Layout layout,
                 std::shared_ptr<OutputQueue> outputs, uint8_t* out)
    : id_(next_id()),
      stream_(std::move(stream)),
      count_(static_cast<int32_t>(frames.size())),
      layout_(layout),
      outputs_(std::move(outputs)),
      out_(out),
      groups_left_((count_ + layout.group_frames() - 1) / layout.group_frames()) {
  order_groups(frames);
}

void Request::order_groups(const std::vector<int64_t>& frames) {
  const int32_t size = layout_.group_frames();
  const auto frame = [&](int32_t place) { return frames[std::min(place, count_ - 1)]; };
  order_.resize(groups_left_);
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int32_t a, int32_t b) { return frame(a * size) < frame(b * size); });
  frames_.reserve(order_.size() * size);
  for (const int32_t group : order_) {
    for (int32_t i = 0; i < size; ++i) frames_.push_back(frame(group * size + i));
  }
}

std::vector<Segment> Request::plan(int engines) const {
  return make_segments(*stream_, frames_, layout_.group_frames(), engines);
}

void Request::decode(const Segment& segment, SegmentDecoder& decoder, FrameWriter& writer, int engine) {
  Groups groups(*this, segment, writer, engine);
  const std::vector<int64_t> wanted = groups.wanted();
  decoder.decode(segment.runs, wanted, groups);
}

void Request::put(Output output) {
  const std::lock_guard lock(mutex_);
  if (stopped()) return;
  output.done = --groups_left_ == 0;
  outputs_->put(std::move(output));
}

void Request::fail(const DecodeError& error) {
  const std::lock_guard lock(mutex_);
  if (stopped()) return;
  stopped_.store(true, std::memory_order_release);
  Output output;
  output.request = id_;
  output.done = true;
  output.error = error;
  outputs_->put(std::move(output));
}

void Request::stop() {
  const std::lock_guard lock(mutex_);
  stopped_.store(true, std::memory_order_release);
  outputs_->drop(id_);
}

}  // namespace flashcodec
