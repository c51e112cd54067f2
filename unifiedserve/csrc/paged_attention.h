#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "batch.h"
#include "kernels.h"
#include "kv_cache.h"
#include "thread_pool.h"

namespace unified {

// Which keys a token sees, and what becomes of their scores, q * k * scale.
struct AttentionRules {
  float scale;
  std::int64_t window = std::numeric_limits<std::int32_t>::max();  // the last so many keys up to the token's own
  std::int64_t chunk = 0;        // of those, keys of the token's own chunk of so many positions; 0: all
  float cap = 0;                 // scores become cap * tanh(score / cap); 0: they stay
  const float* sinks = nullptr;  // a head's further score, which has no value: it joins the denominator alone

  std::int64_t first_seen(std::int64_t position) const;
};

// Causal attention of a ragged batch over the keys and values of one layer, in place in their pages, of T or codes;
// those of the new tokens are there already. Query heads that share a key/value head are computed together.
template <class T>
class PagedAttention {
 public:
  // Throws std::invalid_argument if key/value heads do not share the query heads equally.
  PagedAttention(ThreadPool& pool, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                 const AttentionRules& rules);

  // Divides the work for all layers of a step.
  void plan(const Batch& batch);

  // q and out: [tokens, heads, head_dim].
  void run(const Batch& batch, const KvCache& cache, std::int64_t layer, const T* q, T* out);

 private:
  // Some tokens of a sequence under one key/value head. Their keys are cut at multiples of kPartKeys, wherever the
  // tokens' own chunk begins, so that a token's sums depend on its position alone.
  struct Block {
    std::int32_t sequence;
    std::int32_t kv_head;
    std::int32_t first_row;  // in the batch
    std::int32_t tokens;
    std::int64_t first_position;
    std::int64_t first_key;  // the start of the first part
    std::int32_t parts;
    std::int32_t tasks;          // one for each part, or a single one for all
    std::int32_t first_partial;  // where its results lie, if it has several tasks
  };
  // Successive parts of a block.
  struct Task {
    std::int32_t block;
    std::int32_t first_part;
    std::int32_t parts;
  };
  // Results of a range of keys.
  struct Partial {
    float* out;
    float* maximum;
    float* sum;
  };

  void plan_sequence(const Batch& batch, std::int64_t sequence);
  void attend(std::int64_t number, int thread, const Batch& batch, const KvCache& cache, std::int64_t layer, const T* q,
              T* out);
  void attend_part(const Task& task, const Task& next, const Batch& batch, const KvCache& cache, std::int64_t layer,
                   const T* q, const Partial& result, float* scratch) const;
  template <class Stored>
  AttentionTile<T, Stored> tile(const Task& task, const Batch& batch, const KvCache& cache, std::int64_t layer,
                                const T* q, const Partial& result, float* scratch) const;
  Partial partial(float* memory) const;
  void add(const Partial& other, std::int64_t rows, const Partial& total) const;
  void merge(const Block& block, T* out);
  void write(const Block& block, const Partial& result, T* out) const;
  float denominator(const Partial& result, std::int64_t row, std::int64_t head) const;

  std::int64_t group() const { return heads_ / kv_heads_; }
  std::int64_t block_rows() const { return padded_rows(block_tokens() * group()); }
  std::int64_t block_tokens() const;
  std::int64_t partial_size() const { return block_rows() * (padded(head_dim_) + 2); }
  std::int64_t scratch_size() const { return 2 * partial_size() + attention_scratch(block_rows(), head_dim_); }

  ThreadPool& pool_;
  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  AttentionRules rules_;
  std::vector<Block> blocks_;
  std::vector<Task> tasks_;
  std::vector<std::int32_t> split_;  // blocks of several tasks
  std::vector<float> partials_;
  std::vector<float> scratch_;  // one piece a thread
};

}  // namespace unified
