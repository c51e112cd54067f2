// The decoding engines (a thread each) and what they do next.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "serving/request.h"
#include "serving/segment_job.h"

namespace flashcodec {

// Stall-free scheduling (UnifiedServe, Algorithm 2): the unit is the segment, and an engine that becomes idle takes
// the next one at once. Requests go by priority, then in order of arrival; one that has had its turn goes behind the
// others of its priority. A request's plan is made by the first engine that gets to it, and its segments go to engines
// whose backend decodes the stream. An engine does not open a decoder while that would take more memory than allowed,
// unless no other is open.
class Scheduler {
 public:
  // Throws std::runtime_error from add() in a child process: make another there.
  // `engines` = 0: as many as suit the machine, one for each core this process may use. `memory_limit`: bytes for the
  // decoders' pictures; 0: a quarter of the machine's memory.
  Scheduler(int engines, int64_t memory_limit);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Made before a fork, in the parent: here its threads do not exist, and it must never be destroyed.
  bool inherited() const;
  int engines() const { return engines_; }

  void add(RequestPtr request);
  // Forgets the request's segments that have not begun; those that run end at their next packet.
  void cancel(const RequestPtr& request);
  // Stops all requests and joins the threads. Nothing can be added afterwards.
  void close();
  // To be called when something that held an engine back may have changed.
  void wake();

 private:
  using JobPtr = std::unique_ptr<SegmentJob>;
  enum class Stage { kUnplanned, kPlanning, kPlanned };
  struct Entry {
    RequestPtr request;
    Stage stage = Stage::kUnplanned;
    std::deque<Segment> segments;
    std::deque<JobPtr> parked;  // paused jobs with their decoders
    int running = 0;            // engines at work on it
    int64_t turn = 0;           // cost of what it was given since its turn began
  };
  using Entries = std::list<Entry>;
  struct Work {
    RequestPtr request;
    JobPtr job;  // none: the request is to be planned
    int threads = 1;
  };
  struct Engine;

  void run(const Backend& backend, int number);
  std::optional<Work> next(Engine& engine);
  Entries::iterator find_ready(const Engine& engine);
  // Find a paused job that such an engine can go on with.
  static std::deque<JobPtr>::const_iterator find_parked(const Entry& entry, const Engine& engine);
  bool affordable(const Engine& engine, const Request& request) const;
  Work take(Entries::iterator entry, Engine& engine);
  Work take_segment(Entry& entry, Engine& engine);
  void end_turn(Entries::iterator entry);
  void plan(const RequestPtr& request);
  void hand_back(Work work, Engine& engine);
  void rest(Engine& engine);
  void hold(Engine& engine, int64_t memory);
  Entries::iterator find(const RequestPtr& request);
  // Behind the last entry of this priority or a higher one.
  Entries::iterator end_of(int priority);
  // Takes the entry off the list; it ends with `dropped`, which is to be after the lock.
  void drop(Entries::iterator entry, Entries& dropped);
  void remove(const RequestPtr& request);

  const int engines_;
  const int64_t memory_limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Entries entries_;     // highest priority first; those with work left
  int64_t memory_ = 0;  // of all decoders
  bool stopping_ = false;
  const pid_t process_;  // threads do not survive a fork
  std::vector<std::thread> threads_;
};

}  // namespace flashcodec
