#include "batch.h"

#include <algorithm>
#include <stdexcept>

namespace unified {

namespace {

bool are_ranges(std::span<const std::int32_t> bounds, std::size_t count, std::size_t total) {
  return bounds.size() == count + 1 && bounds.front() == 0 && std::ranges::is_sorted(bounds) &&
         static_cast<std::size_t>(bounds.back()) == total;
}

}  // namespace

void Batch::check() const {
  const std::size_t last = wanted.empty() ? 0 : static_cast<std::size_t>(wanted.back());
  if (!are_ranges(rows, kv_lens.size(), slots.size()) || !are_ranges(ranges, kv_lens.size(), pages.size()) ||
      !are_ranges(wanted, kv_lens.size(), last)) {
    throw std::invalid_argument("ragged batch: the index arrays contradict each other");
  }
}

void Batch::check(const KvCache& cache) const {
  for (std::size_t i = 0; i < kv_lens.size(); ++i) {
    const std::int64_t room = (ranges[i + 1] - ranges[i]) * cache.page_size;
    if (kv_lens[i] > room || rows[i + 1] - rows[i] > kv_lens[i]) {
      throw std::invalid_argument("ragged batch: a sequence is longer than its pages, or shorter than its new tokens");
    }
    if (wanted[i + 1] - wanted[i] > rows[i + 1] - rows[i]) {
      throw std::invalid_argument("ragged batch: more of a sequence's tokens are wanted than are new");
    }
  }
  const auto in_range = [](auto values, std::int64_t end) {
    return std::ranges::all_of(values, [end](auto value) { return value >= 0 && value < end; });
  };
  if (!in_range(pages, cache.pages) || !in_range(slots, cache.pages * cache.page_size)) {
    throw std::invalid_argument("ragged batch: a page is not in the cache");
  }
}

}  // namespace unified
