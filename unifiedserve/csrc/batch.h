#pragma once

#include <cstdint>
#include <span>

#include "kv_cache.h"

namespace unified {

// New tokens of several sequences back to back, and their pages: see RaggedBatch in attention/base.py.
struct Batch {
  std::span<const std::int32_t> rows;     // [B + 1] ranges of new tokens
  std::span<const std::int32_t> ranges;   // [B + 1] ranges of pages
  std::span<const std::int32_t> pages;    // [P]
  std::span<const std::int32_t> kv_lens;  // [B]
  std::span<const std::int64_t> slots;    // [T]
  std::span<const std::int32_t> wanted;   // [B + 1] ranges of wanted tokens: the last ones of each sequence

  std::int64_t sequences() const { return static_cast<std::int64_t>(kv_lens.size()); }
  std::int64_t tokens() const { return rows.back(); }
  std::int64_t wanted_tokens() const { return wanted.back(); }

  // The wanted tokens alone; without slots, as their keys and values are written with the others.
  Batch wanted_only() const { return {wanted, ranges, pages, kv_lens, {}, wanted}; }

  // Throws std::invalid_argument if the arrays contradict each other.
  void check() const;
  // Throws std::invalid_argument if a sequence does not fit its pages, or these are not in the cache.
  void check(const KvCache& cache) const;
};

}  // namespace unified
