#include "serving/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "engines/backends.h"

namespace flashcodec {

namespace {

// An engine without work keeps its decoder so long: the next request is often for the same stream.
constexpr std::chrono::seconds kKeepDecoder(1);
// A request's turn, in estimated microseconds for each engine.
constexpr int64_t kTurnCost = 1'000'000;
// Frame threads wait for each other's references and for the conversion: with two an engine all cores stay busy. FFmpeg
// advises against more than 16.
constexpr int kFrameThreads = 2;
constexpr int kMostFrameThreads = 16;

int64_t quarter_of_memory() { return sysconf(_SC_PHYS_PAGES) / 4 * sysconf(_SC_PAGE_SIZE); }

// Return how many engines all backends run where the caller asked for `wanted`.
int count_engines(int wanted) {
  int count = 0;
  for (const Backend* backend : backends()) count += backend->engines(wanted);
  return count;
}

// Run `work`; whatever it throws becomes the failure of the request.
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
  Engine(const Backend& backend, int number) : backend(backend), number(number), writer(backend.writer()) {}

  const Backend& backend;
  const int number;
  std::unique_ptr<SegmentDecoder> decoder;
  std::unique_ptr<GroupWriter> writer;
  int64_t memory = 0;  // of its decoder

  // Decode what the job has left; false if it has paused.
  bool decode(const Work& work) {
    bool finished = true;
    if (work.job->begun()) decoder.reset();
    guard(*work.request, [&] {
      if (!work.job->begun()) begin(work);
      finished = work.job->advance(*writer, number);
    });
    return finished;
  }

  void begin(const Work& work) {
    if (decoder == nullptr) decoder = std::make_unique<SegmentDecoder>(backend);
    work.job->begin(std::move(decoder), work.threads);
  }
};

Scheduler::Scheduler(int engines, int64_t memory_limit)
    : engines_(count_engines(engines)),
      memory_limit_(memory_limit > 0 ? memory_limit : quarter_of_memory()),
      process_(getpid()) {
  threads_.reserve(engines_);
  for (const Backend* backend : backends()) {
    for (int left = backend->engines(engines); left > 0; --left) {
      threads_.emplace_back([this, backend, number = static_cast<int>(threads_.size())] { run(*backend, number); });
    }
  }
}

Scheduler::~Scheduler() { close(); }

bool Scheduler::inherited() const { return process_ != getpid(); }

void Scheduler::close() {
  if (inherited()) return;
  Entries dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const Entry& entry : entries_) entry.request->stop();
    dropped.swap(entries_);
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
    Entry entry;
    entry.request = std::move(request);
    entries_.insert(end_of(entry.request->options().priority), std::move(entry));
  }
  changed_.notify_one();
}

Scheduler::Entries::iterator Scheduler::end_of(int priority) {
  return std::find_if(entries_.begin(), entries_.end(),
                      [&](const Entry& entry) { return entry.request->options().priority < priority; });
}

void Scheduler::cancel(const RequestPtr& request) {
  request->stop();
  remove(request);
}

void Scheduler::wake() {
  { const std::lock_guard lock(mutex_); }  // an engine that has just seen nothing to do is waiting by now
  changed_.notify_all();
}

Scheduler::Entries::iterator Scheduler::find(const RequestPtr& request) {
  return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.request == request; });
}

void Scheduler::remove(const RequestPtr& request) {
  Entries dropped;  // ends after the lock: decoders and sources take their time
  {
    const std::lock_guard lock(mutex_);
    const auto entry = find(request);
    if (entry == entries_.end()) return;
    drop(entry, dropped);
  }
  changed_.notify_all();
}

void Scheduler::drop(Entries::iterator entry, Entries& dropped) {
  for (const JobPtr& job : entry->parked) memory_ -= job->backend().memory(*entry->request->stream());
  dropped.splice(dropped.begin(), entries_, entry);
}

void Scheduler::run(const Backend& backend, int number) {
  Engine engine(backend, number);
  while (std::optional<Work> work = next(engine)) {
    if (work->job == nullptr) {
      plan(work->request);
      continue;
    }
    if (engine.decode(*work)) {
      engine.decoder = work->job->release_decoder();
      work->job.reset();
    }
    hand_back(std::move(*work), engine);
  }
}

// The job has ended, or has paused if it is still there.
void Scheduler::hand_back(Work work, Engine& engine) {
  Entries dropped;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = find(work.request);
    const bool wanted = entry != entries_.end() && !work.request->stopped();
    if (work.job != nullptr && wanted) {
      entry->parked.push_back(std::move(work.job));
      engine.memory = 0;  // counted on with the job
    } else if (engine.decoder == nullptr) {
      hold(engine, 0);
    }
    if (entry == entries_.end()) return;
    --entry->running;
    const bool done = entry->running == 0 && entry->segments.empty() && entry->parked.empty();
    if (!done && wanted) return;
    drop(entry, dropped);
  }
}

std::optional<Scheduler::Work> Scheduler::next(Engine& engine) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopping_) return std::nullopt;
    const auto entry = find_ready(engine);
    if (entry != entries_.end()) return take(entry, engine);
    if (engine.decoder == nullptr) {
      changed_.wait(lock);
    } else if (changed_.wait_for(lock, kKeepDecoder) == std::cv_status::timeout) {
      lock.unlock();
      rest(engine);
      lock.lock();
    }
  }
}

// Lets go of the stream and the scratch memory.
void Scheduler::rest(Engine& engine) {
  engine.decoder.reset();
  engine.writer = engine.backend.writer();
  {
    const std::lock_guard lock(mutex_);
    hold(engine, 0);
  }
  changed_.notify_all();
}

void Scheduler::hold(Engine& engine, int64_t memory) {
  memory_ += memory - engine.memory;
  engine.memory = memory;
}

Scheduler::Entries::iterator Scheduler::find_ready(const Engine& engine) {
  return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    if (entry.stage == Stage::kUnplanned) return true;
    if (entry.stage == Stage::kPlanning || entry.request->outputs().full()) return false;
    if (find_parked(entry, engine) != entry.parked.end()) return true;
    return !entry.segments.empty() && engine.backend.decodes(*entry.request->stream()) &&
           affordable(engine, *entry.request);
  });
}

std::deque<Scheduler::JobPtr>::const_iterator Scheduler::find_parked(const Entry& entry, const Engine& engine) {
  return std::ranges::find_if(entry.parked, [&](const JobPtr& job) { return &job->backend() == &engine.backend; });
}

bool Scheduler::affordable(const Engine& engine, const Request& request) const {
  const int64_t others = memory_ - engine.memory;
  return others == 0 || others + engine.backend.memory(*request.stream()) <= memory_limit_;
}

Scheduler::Work Scheduler::take(Entries::iterator entry, Engine& engine) {
  if (entry->stage == Stage::kUnplanned) {
    entry->stage = Stage::kPlanning;
    return {entry->request, nullptr};
  }
  ++entry->running;
  Work work = take_segment(*entry, engine);
  entry->turn += work.job->segment().cost;
  if (entry->turn >= kTurnCost * engines_) end_turn(entry);
  return work;
}

Scheduler::Work Scheduler::take_segment(Entry& entry, Engine& engine) {
  const int64_t memory = engine.backend.memory(*entry.request->stream());
  if (const auto parked = find_parked(entry, engine); parked != entry.parked.end()) {
    const auto job = entry.parked.begin() + (parked - entry.parked.cbegin());
    Work work{entry.request, std::move(*job)};
    entry.parked.erase(job);
    hold(engine, 0);
    engine.memory = memory;
    return work;
  }
  const bool alone = entries_.size() == 1;
  Segment segment = std::move(entry.segments.front());
  entry.segments.pop_front();
  const int threads = segment.wide && alone ? std::min(kFrameThreads * engines_, kMostFrameThreads) : 1;
  hold(engine, memory);
  auto job = std::make_unique<SegmentJob>(entry.request, std::move(segment));
  return {entry.request, std::move(job), threads};
}

void Scheduler::end_turn(Entries::iterator entry) {
  entry->turn = 0;
  entries_.splice(end_of(entry->request->options().priority), entries_, entry);
}

void Scheduler::plan(const RequestPtr& request) {
  std::vector<Segment> segments;
  guard(*request, [&] { segments = request->plan(engines_); });
  if (segments.empty()) {
    remove(request);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    const auto entry = find(request);
    if (entry == entries_.end()) return;
    entry->stage = Stage::kPlanned;
    entry->segments.assign(std::make_move_iterator(segments.begin()), std::make_move_iterator(segments.end()));
  }
  changed_.notify_all();
}

}  // namespace flashcodec
