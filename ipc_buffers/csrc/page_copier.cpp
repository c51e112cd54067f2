#include "page_copier.h"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ipc {

struct PageCopier::Job {
  std::uint64_t number = 0;
  TimePoint begun = now();
  std::shared_ptr<CopyPath> path;
  std::vector<PageCopy> copies;
  PoolTable sources, own;  // kept mapped
  std::vector<CopyRun> runs;
  std::vector<std::size_t> ends;  // of the pieces, among the runs
  std::uint64_t bytes = 0;
  // Under the copier's lock:
  std::size_t taken = 0;
  std::size_t done = 0;
  std::size_t at_work = 0;
  bool closed = false;
  std::string error;

  void plan();
  std::span<const CopyRun> piece(std::size_t number) const;
  std::string stale() const;
  bool is_last_at_work() const { return at_work == 1 && (done == ends.size() || !error.empty()); }
};

namespace {

// Two lists of parts, of as many bytes, as runs that are without gaps in both.
void append_runs(std::span<const Extent> from, std::span<const Extent> to, std::vector<CopyRun>& runs) {
  std::size_t in_from = 0, in_to = 0;
  for (std::size_t i = 0, j = 0; i < from.size();) {
    const auto bytes = std::min(from[i].bytes - in_from, to[j].bytes - in_to);
    runs.push_back({from[i].at + in_from, to[j].at + in_to, bytes});
    in_from += bytes;
    in_to += bytes;
    if (in_from == from[i].bytes) ++i, in_from = 0;
    if (in_to == to[j].bytes) ++j, in_to = 0;
  }
}

// What is wrong with a source, as ArenaError.
void check_sources(const PoolTable& sources, const PoolTable& own, const std::vector<PageCopy>& copies) {
  for (const auto& copy : copies) {
    const auto source = sources.find(copy.pool);
    if (source == sources.end()) throw ArenaError("the source has no pool '" + copy.pool + "'");
    const auto there = source->second->page_bytes(), here = own.at(copy.pool)->page_bytes();
    if (there != here) {
      throw ArenaError("the source has pages of '" + copy.pool + "' of " + std::to_string(there) +
                       " bytes, and this side of " + std::to_string(here));
    }
    check_range(copy.pool, *source->second, copy.source);
  }
}

}  // namespace

void PageCopier::Job::plan() {
  const auto largest = path->piece_bytes();
  for (const auto& copy : copies) {
    append_runs(extents_of(*sources.at(copy.pool), copy.source, largest),
                extents_of(*own.at(copy.pool), copy.into, largest), runs);
  }
  std::size_t in_piece = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    bytes += runs[i].bytes;
    in_piece += runs[i].bytes;
    if (in_piece < largest && i + 1 < runs.size()) continue;
    ends.push_back(i + 1);
    in_piece = 0;
  }
}

std::span<const CopyRun> PageCopier::Job::piece(std::size_t number) const {
  const auto first = number == 0 ? 0 : ends[number - 1];
  return std::span(runs).subspan(first, ends[number] - first);
}

std::string PageCopier::Job::stale() const {
  for (const auto& copy : copies) {
    if (auto text = find_taken_anew(copy.pool, *sources.at(copy.pool), copy.source, copy.epochs)) return *text;
  }
  return {};
}

PageCopier::PageCopier(Bell bell, int threads) : completions_(std::move(bell)), process_(::getpid()) {
  if (threads < 1) throw std::invalid_argument("a copier has at least 1 thread, not " + std::to_string(threads));
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

PageCopier::~PageCopier() {
  shut();
  if (process_ == ::getpid()) return;
  // A fork has none of these threads, and nothing to wait for.
  for (auto& thread : threads_) thread.detach();
}

std::shared_ptr<CopyPath> PageCopier::path_for(const std::vector<PageCopy>& copies, const PoolTable& sources,
                                               const PoolTable& own) {
  std::shared_ptr<CopyPath> path;
  for (const auto& copy : copies) path = path_to(*sources.at(copy.pool)->data(), *own.at(copy.pool)->data());
  return path;
}

std::shared_ptr<CopyPath> PageCopier::path_to(const Memory& source, const Memory& target) {
  const auto key = std::pair(source.place().gpu.value_or(kHost), target.place().gpu.value_or(kHost));
  {
    const std::lock_guard lock(mutex_);
    const auto known = paths_.find(key);
    if (known != paths_.end()) return known->second;
  }
  auto path = path_between(source, target);  // the driver may take a while
  const std::lock_guard lock(mutex_);
  return paths_.try_emplace(key, std::move(path)).first->second;
}

std::uint64_t PageCopier::read(const PoolTable& sources, const PoolTable& own, const std::vector<PageCopy>& copies) {
  check_copies(own, copies);
  check_sources(sources, own, copies);
  auto job = std::make_shared<Job>();
  job->path = path_for(copies, sources, own);
  job->copies = copies;
  job->sources = sources;
  job->own = own;
  if (job->path != nullptr) job->plan();
  std::unique_lock lock(mutex_);
  if (stopping_) throw std::runtime_error("this carrier is shut");
  job->number = ++last_;
  if (job->ends.empty()) {
    lock.unlock();
    finish(*job, {});
    return job->number;
  }
  jobs_[job->number] = job;
  queue_.push_back(job);
  lock.unlock();
  changed_.notify_all();
  return job->number;
}

void PageCopier::finish(const Job& job, std::string error) {
  if (error.empty()) error = job.stale();
  const auto bytes = error.empty() ? job.bytes : 0;
  completions_.add({job.number, std::move(error), bytes, seconds_since(job.begun)});
}

void PageCopier::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    work(lock);
  }
}

// Does a piece of the first job. The lock is held when it begins and when it ends, not in between.
void PageCopier::work(std::unique_lock<std::mutex>& lock) {
  const auto job = queue_.front();
  const auto number = job->taken++;
  if (job->taken == job->ends.size()) queue_.pop_front();
  ++job->at_work;
  lock.unlock();
  std::string error;
  try {
    if (number == 0) error = job->stale();
    if (error.empty()) job->path->copy(job->piece(number));
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  lock.lock();
  ++job->done;
  if (!error.empty()) {
    job->error = std::move(error);
    std::erase(queue_, job);
  }
  if (job->is_last_at_work() && !job->closed) {
    lock.unlock();
    finish(*job, job->error);
    lock.lock();
    jobs_.erase(job->number);
  }
  // Only now: whoever closes it waits until all has been told that there is to tell.
  --job->at_work;
  rested_.notify_all();
}

// Waits until nobody works on it.
void PageCopier::drop(const JobPtr& job, std::unique_lock<std::mutex>& lock) {
  job->closed = true;
  std::erase(queue_, job);
  rested_.wait(lock, [&] { return job->at_work == 0; });
}

void PageCopier::close(std::uint64_t transfer) {
  if (process_ != ::getpid()) return;
  {
    std::unique_lock lock(mutex_);
    const auto found = jobs_.find(transfer);
    if (found != jobs_.end()) {
      const auto job = found->second;
      jobs_.erase(found);
      drop(job, lock);
    }
  }
  completions_.forget(transfer);
}

void PageCopier::shut() {
  if (process_ != ::getpid()) return;
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    for (const auto& job : std::exchange(jobs_, {})) drop(job.second, lock);
  }
  changed_.notify_all();
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace ipc
