#include "transfers.h"

#include <algorithm>
#include <utility>

namespace ipc {

std::vector<Extent> extents_of(const PagePool& pool, std::span<const std::int32_t> pages, std::size_t largest) {
  auto* const data = static_cast<std::byte*>(pool.data()->address());
  std::vector<Extent> extents;
  for (const auto page : pages) {
    auto* at = data + static_cast<std::size_t>(page) * pool.page_bytes();
    for (auto left = pool.page_bytes(); left > 0;) {
      const bool follows = !extents.empty() && extents.back().at + extents.back().bytes == at;
      if (!follows || extents.back().bytes == largest) extents.push_back({at, 0});
      const auto part = std::min(left, largest - extents.back().bytes);
      extents.back().bytes += part;
      at += part;
      left -= part;
    }
  }
  return extents;
}

void check_copies(const PoolTable& own, const std::vector<PageCopy>& copies) {
  for (const auto& copy : copies) {
    const auto found = own.find(copy.pool);
    if (found == own.end()) throw std::invalid_argument("no pool '" + copy.pool + "' has been registered");
    if (copy.epochs.size() != copy.source.size() || copy.into.size() != copy.source.size()) {
      throw std::invalid_argument(std::to_string(copy.source.size()) + " pages of '" + copy.pool + "' with " +
                                  std::to_string(copy.epochs.size()) + " epochs, into " +
                                  std::to_string(copy.into.size()));
    }
    found->second->check_in_use(copy.into);
  }
}

void check_range(const std::string& name, const PagePool& pool, std::span<const std::int32_t> pages) {
  for (const auto page : pages) {
    if (page >= 0 && static_cast<std::size_t>(page) < pool.num_pages()) continue;
    throw ArenaError("page " + std::to_string(page) + " is not in the source's pool '" + name + "' of " +
                     std::to_string(pool.num_pages()) + " pages");
  }
}

std::optional<std::string> find_taken_anew(const std::string& name, const PagePool& pool,
                                           std::span<const std::int32_t> pages, std::span<const std::uint64_t> epochs) {
  const auto first = pool.first_taken_anew(pages, epochs);
  if (!first) return std::nullopt;
  return "page " + std::to_string(pages[*first]) + " of '" + name + "' has been taken anew";
}

double seconds_since(TimePoint begin) { return std::chrono::duration<double>(now() - begin).count(); }

void Completions::add(Done done) {
  {
    const std::lock_guard lock(mutex_);
    done_.push_back(std::move(done));
    if (done_.size() > 1) return;
  }
  bell_.ring();
}

std::vector<Done> Completions::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void Completions::forget(std::uint64_t transfer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(done_, [&](const Done& done) { return done.transfer == transfer; });
}

}  // namespace ipc
