// The decoding engines (a thread each) and what they do next.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "serving/engine_kinds.h"
#include "serving/request.h"
#include "serving/segment_job.h"

namespace flashcodec {

// Stall-free scheduling (UnifiedServe, Algorithm 2): the unit is the segment, and an engine that becomes idle takes
// the next one at once. Requests go by priority, then the one that has least left: so what has begun is finished, and
// what is short need not wait for what is long: an engine turns to it after its next frame. Age makes up for length, so
// nobody waits for ever. Requests that have turns go by these instead. A request's plan is made by the first engine
// that gets to it, for the kinds of engines that are estimated to be done first, together; a kind that cannot go on
// with it leaves it to the others, and the last one to those not chosen before. An engine does not open a decoder while
// that would take more memory than allowed, unless no other is open.
class Scheduler {
 public:
  // Throws std::runtime_error from add() in a child process: make another there.
  // `memory_limit`: bytes for the decoders' pictures; 0: a quarter of the machine's memory.
  Scheduler(EngineKinds kinds, int64_t memory_limit);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Made before a fork, in the parent: here its threads do not exist, and it must never be destroyed.
  bool inherited() const;
  const EngineKinds& kinds() const { return kinds_; }
  // How often a kind of engine could not go on with a segment, and another one took it over.
  int64_t fallbacks() const { return fallbacks_; }

  void add(RequestPtr request);
  // Changes when it is its turn; one that is finished is left alone.
  void set_turn(const RequestPtr& request, Output::Clock::time_point turn);
  // Forgets the request's segments that have not begun; those that run end at their next packet.
  void cancel(const RequestPtr& request);
  // Stops all requests and joins the threads. Nothing can be added afterwards.
  void close();
  // To be called when something that held an engine back may have changed.
  void wake();

 private:
  using JobPtr = std::unique_ptr<SegmentJob>;
  enum class Stage { kUnplanned, kPlanning, kPlanned };
  enum class Progress { kFinished, kPaused, kRefused };
  struct Entry {
    RequestPtr request;
    Stage stage = Stage::kUnplanned;
    std::vector<Share> shares;  // the kinds that decode it, once planned
    Refused refused;
    std::deque<Segment> segments;
    std::deque<JobPtr> parked;  // paused jobs with their decoders, and those that are to start over
    int running = 0;            // engines at work on it
    Output::Clock::time_point arrival;
    std::optional<Output::Clock::time_point> turn;
    std::chrono::microseconds left{0};  // estimated CPU time of its unfinished segments
  };
  using Entries = std::list<Entry>;
  struct Work {
    RequestPtr request;
    JobPtr job;  // none: the request is to be planned
    int threads = 1;
  };
  struct Engine;

  void run(const EngineKind& kind, int number);
  std::optional<Work> next(Engine& engine);
  // The one to go on with, among those that such an engine can work on.
  Entries::iterator find_ready(const Engine& engine);
  bool ready(const Entry& entry, const Engine& engine) const;
  // Whether the engine should leave a request that it is at work on for another one.
  bool outranked(const RequestPtr& request, const Engine& engine);
  // Sorts requests: who goes first comes first.
  std::tuple<int64_t, Output::Clock::time_point> rank(const Entry& entry) const;
  // Find a parked job that such an engine can go on with.
  static std::deque<JobPtr>::const_iterator find_parked(const Entry& entry, const Engine& engine);
  // Whether the engine would be done with a segment before the others are with all that is left.
  static bool helps(const Entry& entry, const Engine& engine, int64_t cost);
  bool affordable(const Engine& engine, const Request& request) const;
  Work take(Entries::iterator entry, Engine& engine);
  Work take_segment(Entry& entry, Engine& engine);
  void plan(const RequestPtr& request);
  void hand_back(Work work, Engine& engine, Progress progress);
  // Make the job ready for another kind of engine; false if there is none.
  bool turn_over(const Work& work, const Engine& engine);
  void rest(Engine& engine);
  void hold(Engine& engine, int64_t memory);
  Entries::iterator find(const RequestPtr& request);
  // Takes the entry off the list; it ends with `dropped`, which is to be after the lock.
  void drop(Entries::iterator entry, Entries& dropped);
  void remove(const RequestPtr& request);

  const EngineKinds kinds_;
  const int engines_;  // of all kinds
  const int64_t memory_limit_;
  std::atomic<int64_t> fallbacks_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  Entries entries_;  // those with work left, as they came
  std::atomic<size_t> num_entries_ = 0;
  int64_t memory_ = 0;  // of all decoders
  bool stopping_ = false;
  const pid_t process_;  // threads do not survive a fork
  std::vector<std::thread> threads_;
};

}  // namespace flashcodec
