#include "scheduler.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>

namespace flashcodec {

namespace {

// An engine without work keeps its decoder so long: the next request is often for the same stream.
constexpr std::chrono::seconds kKeepDecoder(1);

int usable_cores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

// Runs `work`; whatever it throws becomes the failure of the request.
template <class Work>
void guard(Request& request, Work work) {
  const auto fail = [&](const std::string& reason) {
    request.fail(DecodeError(request.stream()->source()->name(), request.stream()->stream_index(), reason));
  };
  try {
    work();
  } catch (const DecodeError& error) {
    request.fail(error);
  } catch (const std::bad_alloc&) {
    fail("out of memory");
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

}  // namespace

// What a decoding thread keeps from one segment to the next.
struct Scheduler::Engine {
  explicit Engine(int number) : number(number) {}

  const int number;
  std::unique_ptr<SegmentDecoder> decoder;
  FrameWriter writer;

  bool idle() const { return decoder == nullptr; }

  // Lets go of the stream and the scratch memory.
  void rest() {
    decoder.reset();
    writer = FrameWriter();
  }

  bool ready_for(const Request& request) const { return decoder != nullptr && decoder->stream() == request.stream(); }

  void decode(Request& request, const Segment& segment) {
    guard(request, [&] {
      if (!ready_for(request)) {
        decoder.reset();
        decoder = std::make_unique<SegmentDecoder>(request.stream());
      }
      request.decode(segment, *decoder, writer, number);
    });
  }
};

Scheduler::Scheduler(int engines) : process_(getpid()) {
  const int count = engines > 0 ? engines : usable_cores();
  threads_.reserve(count);
  for (int i = 0; i < count; ++i) threads_.emplace_back([this, i] { run(i); });
}

Scheduler::~Scheduler() { close(); }

bool Scheduler::inherited() const { return process_ != getpid(); }

void Scheduler::close() {
  if (inherited()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const Entry& entry : entries_) entry.request->stop();
    entries_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Scheduler::add(RequestPtr request) {
  if (inherited()) throw std::runtime_error("this decoder pool belongs to the parent process");
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw std::runtime_error("this decoder pool is closed");
    entries_.push_back({std::move(request), Stage::kUnplanned, {}});
  }
  changed_.notify_one();
}

void Scheduler::cancel(const RequestPtr& request) {
  request->stop();
  remove(request);
}

void Scheduler::wake() {
  { const std::lock_guard lock(mutex_); }  // an engine that has just seen nothing to do is waiting by now
  changed_.notify_all();
}

void Scheduler::remove(const RequestPtr& request) {
  const std::lock_guard lock(mutex_);
  entries_.remove_if([&](const Entry& entry) { return entry.request == request; });
}

void Scheduler::run(int number) {
  auto engine = std::make_unique<Engine>(number);
  while (std::optional<Work> work = next(*engine)) {
    if (!work->segment) {
      plan(work->request);
      continue;
    }
    engine->decode(*work->request, *work->segment);
    if (work->request->stopped()) remove(work->request);
  }
}

std::optional<Scheduler::Work> Scheduler::next(Engine& engine) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopping_) return std::nullopt;
    if (Entry* entry = find_ready(engine)) return take(*entry);
    if (engine.idle()) {
      changed_.wait(lock);
    } else if (changed_.wait_for(lock, kKeepDecoder) == std::cv_status::timeout) {
      lock.unlock();
      engine.rest();
      lock.lock();
    }
  }
}

Scheduler::Entry* Scheduler::find_ready(const Engine& engine) {
  Entry* first = nullptr;
  for (Entry& entry : entries_) {
    const bool ready = entry.stage != Stage::kPlanning && !entry.request->outputs().full();
    if (!ready) continue;
    if (engine.ready_for(*entry.request)) return &entry;
    if (first == nullptr) first = &entry;
  }
  return first;
}

Scheduler::Work Scheduler::take(Entry& entry) {
  Work work{entry.request, std::nullopt};
  if (entry.stage == Stage::kUnplanned) {
    entry.stage = Stage::kPlanning;
    return work;
  }
  work.segment = std::move(entry.segments.front());
  entry.segments.pop_front();
  if (entry.segments.empty()) entries_.remove_if([&](const Entry& e) { return &e == &entry; });
  return work;
}

void Scheduler::plan(const RequestPtr& request) {
  std::vector<Segment> segments;
  guard(*request, [&] { segments = request->plan(engines()); });
  if (segments.empty()) {
    remove(request);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      if (entry.request != request) continue;
      entry.stage = Stage::kPlanned;
      entry.segments.assign(std::make_move_iterator(segments.begin()), std::make_move_iterator(segments.end()));
    }
  }
  changed_.notify_all();
}

}  // namespace flashcodec
