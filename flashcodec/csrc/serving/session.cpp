#include "serving/session.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace flashcodec {

Session::Session(std::shared_ptr<Scheduler> scheduler, size_t output_limit)
    : scheduler_(std::move(scheduler)), outputs_(std::make_shared<OutputQueue>(output_limit)) {}

Session::~Session() { cancel_all(); }

uint64_t Session::add(BitstreamPtr stream, const std::vector<int64_t>& frames, Layout layout, RequestOptions options,
                      uint8_t* out) {
  if (layout.height == 0) layout.height = stream->metadata().height;
  if (layout.width == 0) layout.width = stream->metadata().width;
  layout.check();
  if (frames.empty()) throw std::invalid_argument("no frames asked for");
  const auto count = static_cast<int64_t>(stream->frames().size());
  for (const int64_t frame : frames) {
    if (frame >= 0 && frame < count) continue;
    throw std::out_of_range("frame " + std::to_string(frame) + " is outside of the video's " + std::to_string(count) +
                            " frames");
  }
  auto request = std::make_shared<Request>(std::move(stream), frames, layout, options, outputs_, out);
  const uint64_t id = request->id();
  {
    const std::lock_guard lock(mutex_);
    requests_.emplace(id, request);
  }
  scheduler_->add(std::move(request));
  return id;
}

std::optional<Output> Session::take(std::chrono::duration<double> timeout) {
  std::optional<Output> output = outputs_->take(timeout);
  if (!output && scheduler_->inherited()) throw std::runtime_error("this decoder pool belongs to the parent process");
  if (!output) return std::nullopt;
  if (output->done) {
    const std::lock_guard lock(mutex_);
    requests_.erase(output->request);
  }
  scheduler_->wake();
  return output;
}

void Session::set_turn(uint64_t request, Output::Clock::time_point turn) {
  RequestPtr found;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = requests_.find(request);
    if (entry == requests_.end()) return;
    found = entry->second;
  }
  scheduler_->set_turn(found, turn);
}

void Session::cancel(uint64_t request) {
  RequestPtr found;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = requests_.find(request);
    if (entry == requests_.end()) return;
    found = std::move(entry->second);
    requests_.erase(entry);
  }
  scheduler_->cancel(found);
}

void Session::cancel_all() {
  std::unordered_map<uint64_t, RequestPtr> requests;
  {
    const std::lock_guard lock(mutex_);
    requests.swap(requests_);
  }
  for (const auto& [id, request] : requests) scheduler_->cancel(request);
}

}  // namespace flashcodec
