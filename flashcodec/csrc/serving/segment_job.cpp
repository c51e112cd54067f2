#include "serving/segment_job.h"

#include <algorithm>
#include <utility>

namespace flashcodec {

SegmentJob::SegmentJob(RequestPtr request, Segment segment)
    : request_(std::move(request)), segment_(std::move(segment)) {
  for (int32_t place = segment_.first; place < segment_.last; ++place)
    slots_.push_back({request_->frames()[place], place});
  std::ranges::sort(slots_, {}, [](const Slot& slot) { return std::pair(slot.frame, slot.place); });
  groups_.resize((segment_.last - segment_.first) / group_frames());
  for (Group& group : groups_) group.missing = group_frames();
}

void SegmentJob::begin(std::unique_ptr<SegmentDecoder> decoder, int threads) {
  decoder_ = std::move(decoder);
  decoder_->attach(request_->stream(), threads);
  std::vector<int64_t> wanted;
  for (const Slot& slot : slots_) {
    if (wanted.empty() || wanted.back() != slot.frame) wanted.push_back(slot.frame);
  }
  decoder_->begin(segment_.runs, std::move(wanted), request_->options().fast);
}

bool SegmentJob::advance(GroupWriter& writer, int engine, const std::function<bool()>& yields) {
  writer_ = &writer;
  yields_ = &yields;
  engine_ = engine;
  since_ = Output::Clock::now();
  if (!decoder_->advance(*this)) return false;
  if (!cancelled()) report_missing();
  return true;
}

void SegmentJob::start_over() {
  decoder_.reset();
  std::erase_if(slots_, [&](const Slot& slot) { return group_of(slot).missing == 0; });
  for (Group& group : groups_) {
    if (group.missing == 0) continue;
    group = {};
    group.missing = group_frames();
  }
}

bool SegmentJob::cancelled() const {
  request_->check_time();
  return request_->stopped();
}

std::span<const SegmentJob::Slot> SegmentJob::slots_of(int64_t frame) const {
  const auto [begin, end] = std::equal_range(slots_.begin(), slots_.end(), Slot{frame, 0},
                                             [](const Slot& a, const Slot& b) { return a.frame < b.frame; });
  return {begin, end};
}

void SegmentJob::put(int64_t index, const Picture& picture, bool damaged) {
  const std::span<const Slot> slots = slots_of(index);
  if (!(damaged && request_->options().report)) write(slots, picture);
  for (const Slot& slot : slots) {
    Group& group = group_of(slot);
    group.damaged = group.damaged || damaged;
    if (--group.missing == 0) finish(slot);
  }
}

void SegmentJob::write(std::span<const Slot> slots, const Picture& picture) {
  const auto writing = request_->writing();
  if (request_->stopped()) return;
  const Layout& layout = request_->layout();
  const size_t bytes = writer_->group_bytes(picture, layout);
  std::vector<Place> places;
  for (const Slot& slot : slots) places.push_back(place_of(slot, bytes));
  writer_->write(picture, request_->stream()->orientation(), layout, places);
}

uint8_t* SegmentJob::out_of(const Slot& slot, size_t group_bytes) const {
  return request_->out() == nullptr ? nullptr : request_->out() + group_bytes * request_->group_at(slot.place);
}

Place SegmentJob::place_of(const Slot& slot, size_t group_bytes) {
  const int number = (slot.place - segment_.first) % group_frames();
  if (request_->out() != nullptr && writer_->in_place()) return {out_of(slot, group_bytes), number};
  Group& group = group_of(slot);
  if (group.data == nullptr) {
    group.data = writer_->take(group_bytes);
    group.bytes = group_bytes;
  }
  return {group.data.get(), number};
}

Output SegmentJob::output_of(const Slot& slot) {
  Output output;
  output.first = request_->group_at(slot.place) * group_frames();
  output.count = std::min(group_frames(), request_->count() - output.first);
  output.engine = engine_;
  output.decoded_on_gpu = decoder_->backend().on_gpu();
  output.gpu = writer_->gpu();
  output.began = since_;
  output.ended = since_ = Output::Clock::now();
  return output;
}

void SegmentJob::finish(const Slot& slot) {
  Group& group = group_of(slot);
  {
    const auto writing = request_->writing();
    if (request_->stopped()) return;
    group.data = writer_->finish(std::move(group.data), group.bytes, out_of(slot, group.bytes));
  }
  Output output = output_of(slot);
  output.damaged = group.damaged;
  if (group.damaged && request_->options().report) {
    const Bitstream& stream = *request_->stream();
    output.error = DecodeError(stream.source()->name(), stream.stream_index(),
                               "frame " + std::to_string(slot.frame) + " is damaged", ErrorKind::kDamaged, slot.frame);
    group.data.reset();
  } else {
    output.data = std::move(group.data);
    output.bytes = group.bytes;
  }
  request_->put(std::move(output));
}

// Ends the request, or tells of each group that is incomplete.
void SegmentJob::report_missing() {
  for (const int64_t frame : decoder_->missing()) {
    const DecodeError error = decoder_->why_missing(frame);
    if (!request_->options().report) return request_->fail(error);
    for (const Slot& slot : slots_of(frame)) {
      Group& group = group_of(slot);
      if (group.missing == 0) continue;
      group.missing = 0;
      Output output = output_of(slot);
      output.damaged = true;
      output.error = error;
      request_->put(std::move(output));
    }
  }
}

}  // namespace flashcodec
