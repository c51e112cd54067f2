// The decoding engines (threads) and what they do next.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "request.h"

namespace flashcodec {

// Stall-free scheduling (UnifiedServe, Algorithm 2): the unit is the segment. An engine that becomes idle takes
// the next segment at once: of the request it has worked on, as its decoder is ready for it, else of the request
// that came first. A request's plan is made by the first engine that gets to it.
class Scheduler {
 public:
  // Throws std::runtime_error from add() in a child process: make another there.
  // `engines` = 0: one for each core this process may use.
  explicit Scheduler(int engines);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Made before a fork, in the parent: here its threads do not exist, and it must never be destroyed.
  bool inherited() const;
  int engines() const { return static_cast<int>(threads_.size()); }

  void add(RequestPtr request);
  // Forgets the request's segments that have not begun; those that run end at their next packet.
  void cancel(const RequestPtr& request);
  // Stops all requests and joins the threads. Nothing can be added afterwards.
  void close();
  // To be called when something that held an engine back may have changed.
  void wake();

 private:
  enum class Stage { kUnplanned, kPlanning, kPlanned };
  struct Entry {
    RequestPtr request;
    Stage stage = Stage::kUnplanned;
    std::deque<Segment> segments;
  };
  struct Work {
    RequestPtr request;
    std::optional<Segment> segment;  // none: the request is to be planned
  };
  struct Engine;

  void run(int number);
  std::optional<Work> next(Engine& engine);
  Entry* find_ready(const Engine& engine);
  Work take(Entry& entry);
  void plan(const RequestPtr& request);
  void remove(const RequestPtr& request);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Entry> entries_;  // in order of arrival; those with work left
  bool stopping_ = false;
  const pid_t process_;  // threads do not survive a fork
  std::vector<std::thread> threads_;
};

}  // namespace flashcodec
