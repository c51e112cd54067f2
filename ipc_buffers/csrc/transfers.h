#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bell.h"
#include "futex.h"
#include "page_pool.h"

namespace ipc {

using PoolTable = std::map<std::string, std::shared_ptr<PagePool>>;

// Pages of a source's pool, in their epochs, and as many pages of the reader's own pool of that name.
struct PageCopy {
  std::string pool;
  std::vector<std::int32_t> source;
  std::vector<std::uint64_t> epochs;
  std::vector<std::int32_t> into;
};

// A part of a pool without gaps.
struct Extent {
  std::byte* at;
  std::size_t bytes;
};

// The pages in their order, neighbours as one part, none larger than `largest`.
std::vector<Extent> extents_of(const PagePool& pool, std::span<const std::int32_t> pages, std::size_t largest);

// Throws std::invalid_argument if there is no such pool or the numbers of pages differ, and PageError unless the
// reader has taken all pages that are to be written.
void check_copies(const PoolTable& own, const std::vector<PageCopy>& copies);

// Throws ArenaError if a source's pool does not have one of the pages.
void check_range(const std::string& name, const PagePool& pool, std::span<const std::int32_t> pages);

// Says which page of a pool has begun another epoch, for people; nothing if none has.
std::optional<std::string> find_taken_anew(const std::string& name, const PagePool& pool,
                                           std::span<const std::int32_t> pages, std::span<const std::uint64_t> epochs);

struct Done {
  std::uint64_t transfer;
  std::string error;  // empty: all pages are there, in the epochs that were asked for
  std::uint64_t bytes;
  double seconds;
};

double seconds_since(TimePoint begin);

// Hands what has ended from the threads that do the work to the one that asks.
class Completions {
 public:
  explicit Completions(Bell bell) : bell_(std::move(bell)) {}

  // Rings for the first one since the last take().
  void add(Done done);
  std::vector<Done> take();
  // As if it had never ended.
  void forget(std::uint64_t transfer);

 private:
  Bell bell_;
  std::mutex mutex_;
  std::vector<Done> done_;
};

}  // namespace ipc
