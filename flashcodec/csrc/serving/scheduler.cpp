#include "serving/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <utility>

namespace flashcodec {

namespace {

// An engine without work keeps its decoder so long: the next request is often for the same stream.
constexpr std::chrono::seconds kKeepDecoder(1);
// A request is overtaken by those only that come within so many times the time that it has left.
constexpr int kAgeing = 8;
// Frame threads wait for each other's references and for the conversion: with two an engine all cores stay busy. FFmpeg
// advises against more than 16.
constexpr int kFrameThreads = 2;
constexpr int kMostFrameThreads = 16;

int64_t quarter_of_memory() { return sysconf(_SC_PHYS_PAGES) / 4 * sysconf(_SC_PAGE_SIZE); }

// Run `work`; whatever it throws becomes the failure of the request.
template <class Work>
void guard(Request& request, Work work) {
  const auto fail = [&](const std::string& reason, ErrorKind kind = ErrorKind::kDamaged) {
    request.fail(DecodeError(request.stream()->source()->name(), request.stream()->stream_index(), reason, kind));
  };
  try {
    work();
  } catch (const DecodeError& error) {
    request.fail(error);
  } catch (const EngineError& error) {
    fail(error.what(), ErrorKind::kUnsupported);
  } catch (const std::bad_alloc&) {
    fail("out of memory");
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

}  // namespace

// What a decoding thread keeps from one segment to the next.
struct Scheduler::Engine {
  Engine(const EngineKind& kind, int number) : kind(kind), number(number) {}

  const EngineKind& kind;
  const int number;
  std::unique_ptr<SegmentDecoder> decoder;
  std::unique_ptr<GroupWriter> writer;
  int64_t memory = 0;  // of its decoder

  // Decode what the job has left.
  Progress decode(const Work& work, const std::function<bool()>& yields) {
    Progress progress = Progress::kFinished;
    if (work.job->begun()) decoder.reset();
    guard(*work.request, [&] {
      try {
        if (writer == nullptr) writer = kind.backend->writer();
        if (!work.job->begun()) begin(work);
        if (!work.job->advance(*writer, number, yields)) progress = Progress::kPaused;
      } catch (const EngineError& error) {
        refusal = error.what();
        progress = Progress::kRefused;
      }
    });
    return progress;
  }

  void begin(const Work& work) {
    if (decoder == nullptr) decoder = std::make_unique<SegmentDecoder>(*kind.backend);
    work.job->begin(std::move(decoder), work.threads);
  }

  std::string refusal;  // why it could not go on
};

Scheduler::Scheduler(EngineKinds kinds, int64_t memory_limit)
    : kinds_(std::move(kinds)),
      engines_(kinds_.engines()),
      memory_limit_(memory_limit > 0 ? memory_limit : quarter_of_memory()),
      process_(getpid()) {
  for (const EngineKind& kind : kinds_.list()) {
    for (int left = kind.engines; left > 0; --left) {
      threads_.emplace_back([this, &kind, number = static_cast<int>(threads_.size())] { run(kind, number); });
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
    num_entries_ = 0;
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
    entry.arrival = Output::Clock::now();
    entry.turn = entry.request->options().turn;
    entries_.push_back(std::move(entry));
    num_entries_ = entries_.size();
  }
  changed_.notify_one();
}

void Scheduler::set_turn(const RequestPtr& request, Output::Clock::time_point turn) {
  const std::lock_guard lock(mutex_);
  const auto entry = find(request);
  if (entry != entries_.end()) entry->turn = turn;  // engines look after each frame
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
  for (const JobPtr& job : entry->parked) {
    if (job->begun()) memory_ -= job->backend().memory(*entry->request->stream());
  }
  dropped.splice(dropped.begin(), entries_, entry);
  num_entries_ = entries_.size();
}

void Scheduler::run(const EngineKind& kind, int number) {
  Engine engine(kind, number);
  while (std::optional<Work> work = next(engine)) {
    if (work->job == nullptr) {
      plan(work->request);
      continue;
    }
    const Progress progress = engine.decode(*work, [&] { return outranked(work->request, engine); });
    if (progress == Progress::kFinished) engine.decoder = work->job->release_decoder();
    hand_back(std::move(*work), engine, progress);
    if (progress == Progress::kRefused) changed_.notify_all();
  }
}

// The job has ended, or is to go on later if it is still there.
void Scheduler::hand_back(Work work, Engine& engine, Progress progress) {
  Entries dropped;
  if (progress == Progress::kRefused && !turn_over(work, engine)) {
    guard(*work.request, [&] { throw EngineError(engine.refusal); });
  }
  JobPtr job = std::move(work.job);  // what is not parked ends after the lock
  {
    const std::lock_guard lock(mutex_);
    const auto entry = find(work.request);
    const bool wanted = entry != entries_.end() && !work.request->stopped();
    const std::chrono::microseconds cost(job->segment().cost);
    if (progress != Progress::kFinished && wanted) {
      if (job->begun()) engine.memory = 0;  // counted on with the job
      entry->parked.push_back(std::move(job));
    }
    if (engine.decoder == nullptr) hold(engine, 0);
    if (entry == entries_.end()) return;
    if (progress == Progress::kFinished) entry->left -= cost;
    --entry->running;
    const bool done = entry->running == 0 && entry->segments.empty() && entry->parked.empty();
    if (!done && wanted) return;
    drop(entry, dropped);
  }
}

bool Scheduler::turn_over(const Work& work, const Engine& engine) {
  work.job->start_over();
  Refused refused;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = find(work.request);
    if (entry == entries_.end()) return true;  // it has ended
    entry->refused.insert(&engine.kind);
    std::erase_if(entry->shares, [&](const Share& share) { return share.kind == &engine.kind; });
    if (entry->shares.empty()) refused = entry->refused;
  }
  if (!refused.empty()) {
    std::vector<Share> others = kinds_.choose(*work.request, refused);
    if (others.empty()) return false;
    const std::lock_guard lock(mutex_);
    if (const auto entry = find(work.request); entry != entries_.end()) entry->shares = std::move(others);
  }
  ++fallbacks_;
  return true;
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
  engine.writer.reset();
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
  auto first = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const bool before = first == entries_.end() || rank(*entry) < rank(*first);
    if (before && ready(*entry, engine)) first = entry;
  }
  return first;
}

bool Scheduler::ready(const Entry& entry, const Engine& engine) const {
  if (entry.stage == Stage::kUnplanned) return true;
  if (entry.stage == Stage::kPlanning || entry.request->outputs().full()) return false;
  const auto parked = find_parked(entry, engine);
  const bool found = parked != entry.parked.end();
  if (found && (*parked)->begun()) return true;
  if (!found && entry.segments.empty()) return false;
  const int64_t cost = found ? (*parked)->segment().cost : entry.segments.front().cost;
  return helps(entry, engine, cost) && affordable(engine, *entry.request);
}

bool Scheduler::helps(const Entry& entry, const Engine& engine, int64_t cost) {
  const auto own = std::ranges::find(entry.shares, &engine.kind, &Share::kind);
  if (own == entry.shares.end()) return false;
  double others = -own->speed;
  double most = 0;
  for (const Share& share : entry.shares) {
    others += share.speed * share.kind->engines;
    most = std::max(most, share.speed);
  }
  if (own->speed == most) return true;
  const double opening = engine.decoder == nullptr ? static_cast<double>(own->opening.count()) : 0;
  return opening + static_cast<double>(cost) / own->speed <= static_cast<double>(entry.left.count()) / others;
}

bool Scheduler::outranked(const RequestPtr& request, const Engine& engine) {
  if (num_entries_ < 2) return false;
  const std::lock_guard lock(mutex_);
  const auto entry = find(request);
  const auto first = find_ready(engine);
  if (entry == entries_.end() || first == entries_.end() || !(rank(*first) < rank(*entry))) return false;
  // The decoder at work stays open meanwhile.
  return memory_ + engine.kind.backend->memory(*first->request->stream()) <= memory_limit_;
}

// An unplanned one, which seems to have nothing left, is soon planned.
std::tuple<int64_t, Output::Clock::time_point> Scheduler::rank(const Entry& entry) const {
  const auto by_work = entry.arrival + kAgeing * entry.left / engines_;
  return {-int64_t{entry.request->options().priority}, entry.turn.value_or(by_work)};
}

std::deque<Scheduler::JobPtr>::const_iterator Scheduler::find_parked(const Entry& entry, const Engine& engine) {
  const auto own = std::ranges::find_if(
      entry.parked, [&](const JobPtr& job) { return job->begun() && &job->backend() == engine.kind.backend.get(); });
  if (own != entry.parked.end()) return own;
  return std::ranges::find_if(entry.parked, [](const JobPtr& job) { return !job->begun(); });
}

bool Scheduler::affordable(const Engine& engine, const Request& request) const {
  const int64_t others = memory_ - engine.memory;
  return others == 0 || others + engine.kind.backend->memory(*request.stream()) <= memory_limit_;
}

Scheduler::Work Scheduler::take(Entries::iterator entry, Engine& engine) {
  if (entry->stage == Stage::kUnplanned) {
    entry->stage = Stage::kPlanning;
    return {entry->request, nullptr};
  }
  ++entry->running;
  return take_segment(*entry, engine);
}

Scheduler::Work Scheduler::take_segment(Entry& entry, Engine& engine) {
  const int64_t memory = engine.kind.backend->memory(*entry.request->stream());
  if (const auto parked = find_parked(entry, engine); parked != entry.parked.end()) {
    const auto job = entry.parked.begin() + (parked - entry.parked.cbegin());
    Work work{entry.request, std::move(*job)};
    entry.parked.erase(job);
    if (!work.job->begun()) {
      hold(engine, memory);
      return work;
    }
    hold(engine, 0);
    engine.memory = memory;
    return work;
  }
  const bool alone = entries_.size() == 1 && entry.shares.size() == 1 && engine.kind.backend->has_frame_threads();
  Segment segment = std::move(entry.segments.front());
  entry.segments.pop_front();
  const int threads = segment.wide && alone ? std::min(kFrameThreads * engine.kind.engines, kMostFrameThreads) : 1;
  hold(engine, memory);
  auto job = std::make_unique<SegmentJob>(entry.request, std::move(segment));
  return {entry.request, std::move(job), threads};
}

void Scheduler::plan(const RequestPtr& request) {
  std::vector<Share> shares;
  std::vector<Segment> segments;
  guard(*request, [&] {
    shares = kinds_.choose(*request, {});
    if (shares.empty()) throw EngineError("no GPU decodes it here, and it was not to be decoded on cores");
    int engines = 0;
    for (const Share& share : shares) engines += share.kind->engines;
    segments = request->plan(engines);
  });
  if (segments.empty()) {
    remove(request);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    const auto entry = find(request);
    if (entry == entries_.end()) return;
    entry->stage = Stage::kPlanned;
    entry->shares = std::move(shares);
    for (const Segment& segment : segments) entry->left += std::chrono::microseconds(segment.cost);
    entry->segments.assign(std::make_move_iterator(segments.begin()), std::make_move_iterator(segments.end()));
  }
  changed_.notify_all();
}

}  // namespace flashcodec
