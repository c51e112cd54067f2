#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "copy_path.h"
#include "transfers.h"

namespace ipc {

// Copies pages between pools that this process has mapped, in threads of its own.
//
// The source's owner need not know, and may free pages meanwhile: epochs are compared before copying, to save it, and
// after, to know what was copied.
class PageCopier {
 public:
  PageCopier(Bell bell, int threads);
  PageCopier(const PageCopier&) = delete;
  PageCopier& operator=(const PageCopier&) = delete;
  ~PageCopier();

  // Begins, and returns the transfer's number. Throws as check_copies, and ArenaError for what is wrong with the
  // source: a pool or a page that it does not have, pages of another size, a place where no path leads from.
  std::uint64_t read(const PoolTable& sources, const PoolTable& own, const std::vector<PageCopy>& copies);
  // Nothing is written after it returns, and nothing told of the transfer.
  void close(std::uint64_t transfer);
  // Drops what is under way; nothing is written after it returns. Idempotent.
  void shut();

  Completions& completions() { return completions_; }

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;

  static constexpr int kHost = -1;

  void run();
  void work(std::unique_lock<std::mutex>& lock);
  void finish(const Job& job, std::string error);
  std::shared_ptr<CopyPath> path_for(const std::vector<PageCopy>& copies, const PoolTable& sources,
                                     const PoolTable& own);
  std::shared_ptr<CopyPath> path_to(const Memory& source, const Memory& target);
  void drop(const JobPtr& job, std::unique_lock<std::mutex>& lock);

  Completions completions_;
  std::mutex mutex_;
  std::condition_variable changed_;  // there is work
  std::condition_variable rested_;   // a thread has ended a piece
  std::deque<JobPtr> queue_;         // with pieces that nobody has taken
  std::map<std::uint64_t, JobPtr> jobs_;
  std::map<std::pair<int, int>, std::shared_ptr<CopyPath>> paths_;  // by GPUs, from and to
  std::uint64_t last_ = 0;
  bool stopping_ = false;
  pid_t process_;
  std::vector<std::thread> threads_;  // last: they see all of the above
};

}  // namespace ipc
