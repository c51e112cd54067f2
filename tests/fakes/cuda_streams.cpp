#include "cuda_streams.h"

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

extern "C" int cuCtxGetCurrent(void** context);

namespace {

enum Result { kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400, kNotReady = 600 };

constexpr unsigned kNonBlocking = 1;

struct Stream;
using StreamPtr = std::shared_ptr<Stream>;

// Up to where a stream must have come.
struct Place {
  StreamPtr stream;
  std::size_t count;
};

struct Step {
  fake_cuda::Work work;
  std::vector<Place> after;
};

struct Stream {
  // Streams that wait for each other are at work by turns.
  std::shared_ptr<std::recursive_mutex> working;
  bool blocking;
  void* context = nullptr;  // none: the default stream, which is the current one's
  std::deque<Step> steps{};
  std::size_t given = 0;
  std::size_t done = 0;
};

struct Event {
  void* context = nullptr;
  std::vector<Place> after;
};

std::mutex lock;
const StreamPtr default_stream = std::make_shared<Stream>(std::make_shared<std::recursive_mutex>(), true);
std::map<void*, StreamPtr> streams{{nullptr, default_stream}};
std::map<void*, Event> events;
int behind_default = 0;

void* current() {
  void* context = nullptr;
  return cuCtxGetCurrent(&context) == kSuccess ? context : nullptr;
}

bool is_current() { return current() != nullptr; }

StreamPtr find(void* stream) {
  const std::lock_guard held(lock);
  const auto found = streams.find(stream);
  return found == streams.end() ? nullptr : found->second;
}

// What comes before anything that is given to a stream now.
std::vector<Place> before(const StreamPtr& stream) {
  std::vector<Place> places{{stream, stream->given}};
  if (stream == default_stream) {
    for (const auto& [handle, other] : streams) {
      if (other->blocking && other != stream) places.push_back({other, other->given});
    }
  } else if (stream->blocking) {
    places.push_back({default_stream, default_stream->given});
  }
  return places;
}

bool is_done(const Place& place) { return place.stream->done >= place.count; }

void reach(const Place& place) {
  const std::lock_guard at_work(*place.stream->working);
  for (;;) {
    Step step;
    {
      const std::lock_guard held(lock);
      if (is_done(place)) return;
      step = std::move(place.stream->steps.front());
      place.stream->steps.pop_front();
    }
    for (const Place& other : step.after) {
      if (other.stream != place.stream) reach(other);
    }
    step.work();
    const std::lock_guard held(lock);
    ++place.stream->done;
  }
}

}  // namespace

namespace fake_cuda {

void give(void* stream, Work work) {
  const std::lock_guard held(lock);
  const StreamPtr found = streams.at(stream);
  found->steps.push_back({std::move(work), before(found)});
  ++found->given;
}

void finish(void* stream) {
  std::vector<Place> places;
  {
    const std::lock_guard held(lock);
    places = before(streams.at(stream));
  }
  for (const Place& place : places) reach(place);
}

void finish_all() {
  std::vector<Place> places;
  {
    const std::lock_guard held(lock);
    for (const auto& [handle, stream] : streams) places.push_back({stream, stream->given});
  }
  for (const Place& place : places) reach(place);
}

bool is_own(void* stream) {
  const StreamPtr found = find(stream);
  return found != nullptr && (found->context == nullptr || found->context == current());
}

int live_streams() {
  const std::lock_guard held(lock);
  return static_cast<int>(streams.size() - 1 + events.size());
}

}  // namespace fake_cuda

extern "C" {

// How many streams that wait for the default one have been made.
int fake_cuda_streams_behind_default() { return behind_default; }

int cuStreamCreate(void** stream, unsigned flags) {
  if (!is_current()) return kInvalidContext;
  if (flags > kNonBlocking) return kInvalidValue;
  const bool blocking = flags != kNonBlocking;
  const auto working = blocking ? default_stream->working : std::make_shared<std::recursive_mutex>();
  const auto made = std::make_shared<Stream>(working, blocking, current());
  const std::lock_guard held(lock);
  *stream = made.get();
  streams[*stream] = made;
  behind_default += blocking ? 1 : 0;
  return kSuccess;
}

int cuStreamSynchronize(void* stream) {
  if (!is_current()) return kInvalidContext;
  if (find(stream) == nullptr) return kInvalidHandle;
  fake_cuda::finish(stream);
  return kSuccess;
}

// What it still has to do is done all the same.
int cuStreamDestroy_v2(void* stream) {
  if (find(stream) == nullptr || stream == nullptr) return kInvalidHandle;
  fake_cuda::finish(stream);
  const std::lock_guard held(lock);
  streams.erase(stream);
  return kSuccess;
}

int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  if (!is_current()) return kInvalidContext;
  if (find(stream) == nullptr) return kInvalidHandle;
  fake_cuda::give(stream, [=] { function(data); });
  return kSuccess;
}

int cuEventCreate(void** event, unsigned /*flags*/) {
  if (!is_current()) return kInvalidContext;
  static std::size_t number = 0;
  const std::lock_guard held(lock);
  *event = reinterpret_cast<void*>(++number);
  events[*event].context = current();
  return kSuccess;
}

// As the real one, it fails where the event and the stream are of different GPUs.
int cuEventRecord(void* event, void* stream) {
  if (!is_current()) return kInvalidContext;
  const bool is_own = fake_cuda::is_own(stream);
  const std::lock_guard held(lock);
  const auto found = streams.find(stream);
  if (found == streams.end() || !events.contains(event)) return kInvalidHandle;
  if (events[event].context != (stream == nullptr || is_own ? current() : found->second->context))
    return kInvalidHandle;
  events[event].after = before(found->second);
  return kSuccess;
}

int cuEventQuery(void* event) {
  const std::lock_guard held(lock);
  if (!events.contains(event)) return kInvalidHandle;
  for (const Place& place : events[event].after) {
    if (!is_done(place)) return kNotReady;
  }
  return kSuccess;
}

int cuEventSynchronize(void* event) {
  std::vector<Place> places;
  {
    const std::lock_guard held(lock);
    if (!events.contains(event)) return kInvalidHandle;
    places = events[event].after;
  }
  for (const Place& place : places) reach(place);
  return kSuccess;
}

int cuEventDestroy_v2(void* event) {
  const std::lock_guard held(lock);
  return events.erase(event) == 1 ? kSuccess : kInvalidHandle;
}

}  // extern "C"
