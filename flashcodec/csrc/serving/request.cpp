#include "serving/request.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

namespace flashcodec {

uint64_t Request::next_id() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

Request::Request(BitstreamPtr stream, const std::vector<int64_t>& frames, Layout layout, RequestOptions options,
                 std::shared_ptr<OutputQueue> outputs, uint8_t* out)
    : id_(options.id ? *options.id : next_id()),
      stream_(std::move(stream)),
      count_(static_cast<int32_t>(frames.size())),
      layout_(layout),
      options_(options),
      outputs_(std::move(outputs)),
      out_(out),
      groups_left_((count_ + layout.group_frames() - 1) / layout.group_frames()) {
  order_groups(frames);
}

// Neighbours share GOPs once they are sorted.
void Request::order_groups(const std::vector<int64_t>& frames) {
  const int32_t size = layout_.group_frames();
  const auto frame = [&](int32_t place) { return frames[std::min(place, count_ - 1)]; };
  order_.resize(groups_left_);
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::sort(order_, {}, [&](int32_t group) { return std::pair(frame(group * size), group); });
  frames_.reserve(order_.size() * size);
  for (const int32_t group : order_) {
    for (int32_t i = 0; i < size; ++i) frames_.push_back(frame(group * size + i));
  }
}

std::vector<Segment> Request::plan(int engines) const {
  return make_segments(*stream_, frames_, layout_.group_frames(), engines);
}

void Request::put(Output output) {
  const std::lock_guard lock(mutex_);
  if (stopped()) return;
  output.request = id_;
  output.done = --groups_left_ == 0;
  outputs_->put(std::move(output));
}

void Request::fail(const DecodeError& error) {
  const std::lock_guard lock(mutex_);
  if (stopped()) return;
  end();
  Output output;
  output.request = id_;
  output.done = true;
  output.error = error;
  outputs_->put(std::move(output));
}

void Request::stop() {
  const std::lock_guard lock(mutex_);
  end();
  outputs_->drop(id_);
}

void Request::end() {
  stopped_.store(true, std::memory_order_release);
  const std::lock_guard nothing_written(writing_);
}

void Request::check_time() {
  const double limit = stream_->limits().max_decode_seconds;
  std::call_once(began_, [&] { deadline_ = Deadline(limit); });
  if (!deadline_.passed()) return;
  std::ostringstream reason;
  reason << "decoding took longer than the limit of " << limit << " seconds (max_decode_seconds)";
  fail(DecodeError(stream_->source()->name(), stream_->stream_index(), reason.str(), ErrorKind::kLimit));
}

}  // namespace flashcodec
