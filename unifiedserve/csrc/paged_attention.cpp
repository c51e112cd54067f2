#include "paged_attention.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "scratch.h"
#include "selected_kernels.h"

namespace unified {

namespace {

constexpr std::int64_t kBlockRows = 64;
constexpr std::int64_t kPartKeys = 1024;
static_assert(kPartKeys % kBlockKeys == 0);
// Threads share the parts of blocks of which a sequence has fewer than this. The sums are the same.
constexpr std::int64_t kFewBlocks = 16;

}  // namespace

// Returns the first key that a token at a position sees.
std::int64_t AttentionRules::first_seen(std::int64_t position) const {
  const std::int64_t by_chunk = chunk == 0 ? 0 : position / chunk * chunk;
  return std::max(position + 1 - window, by_chunk);
}

template <class T>
PagedAttention<T>::PagedAttention(ThreadPool& pool, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                                  const AttentionRules& rules)
    : pool_(pool), heads_(heads), kv_heads_(kv_heads), head_dim_(head_dim), rules_(rules) {
  if (heads > 0 && kv_heads > 0 && heads % kv_heads == 0) return;
  throw std::invalid_argument(std::to_string(heads) + " query heads for " + std::to_string(kv_heads) +
                              " key/value heads");
}

template <class T>
std::int64_t PagedAttention<T>::block_tokens() const {
  return std::max<std::int64_t>(kBlockRows / group(), 1);
}

template <class T>
void PagedAttention<T>::plan(const Batch& batch) {
  blocks_.clear();
  tasks_.clear();
  split_.clear();
  for (std::int64_t sequence = 0; sequence < batch.sequences(); ++sequence) plan_sequence(batch, sequence);
  std::int32_t partials = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto number = static_cast<std::int32_t>(i);
    Block& block = blocks_[i];
    const std::int32_t parts = block.parts / block.tasks;
    for (std::int32_t task = 0; task < block.tasks; ++task) tasks_.push_back({number, task * parts, parts});
    if (block.tasks == 1) continue;
    split_.push_back(number);
    block.first_partial = partials;
    partials += block.tasks;
  }
  grow(partials_, partials * partial_size());
  grow(scratch_, pool_.threads() * scratch_size());
}

template <class T>
void PagedAttention<T>::plan_sequence(const Batch& batch, std::int64_t sequence) {
  const auto at = static_cast<std::size_t>(sequence);
  const std::int64_t first = batch.rows[at];
  const std::int64_t tokens = batch.rows[at + 1] - first;
  const std::int64_t past = batch.kv_lens[at] - tokens;
  const std::int64_t blocks = (tokens + block_tokens() - 1) / block_tokens() * kv_heads_;
  for (std::int64_t start = 0; start < tokens; start += block_tokens()) {
    const std::int64_t count = std::min(block_tokens(), tokens - start);
    const std::int64_t first_key = rules_.first_seen(past + start) / kPartKeys * kPartKeys;
    const std::int64_t parts = (past + start + count - first_key + kPartKeys - 1) / kPartKeys;
    for (std::int64_t head = 0; head < kv_heads_; ++head) {
      blocks_.push_back({.sequence = static_cast<std::int32_t>(sequence),
                         .kv_head = static_cast<std::int32_t>(head),
                         .first_row = static_cast<std::int32_t>(first + start),
                         .tokens = static_cast<std::int32_t>(count),
                         .first_position = past + start,
                         .first_key = first_key,
                         .parts = static_cast<std::int32_t>(parts),
                         .tasks = static_cast<std::int32_t>(blocks < kFewBlocks ? parts : 1),
                         .first_partial = 0});
    }
  }
}

template <class T>
void PagedAttention<T>::run(const Batch& batch, const KvCache& cache, std::int64_t layer, const T* q, T* out) {
  const auto count = static_cast<std::int64_t>(tasks_.size());
  // The blocks with the longest contexts come last in a sequence: they go first, and the short ones fill up.
  pool_.run(count,
            [&](std::int64_t number, int thread) { attend(count - 1 - number, thread, batch, cache, layer, q, out); });
  pool_.run(static_cast<std::int64_t>(split_.size()), [&](std::int64_t number, int /*thread*/) {
    merge(blocks_[static_cast<std::size_t>(split_[static_cast<std::size_t>(number)])], out);
  });
}

template <class T>
void PagedAttention<T>::attend(std::int64_t number, int thread, const Batch& batch, const KvCache& cache,
                               std::int64_t layer, const T* q, T* out) {
  const Task& task = tasks_[static_cast<std::size_t>(number)];
  const Block& block = blocks_[static_cast<std::size_t>(task.block)];
  float* const scratch = scratch_.data() + thread * scratch_size();
  const Partial part = partial(scratch);
  const Partial total =
      partial(block.tasks == 1 ? scratch + partial_size()
                               : partials_.data() + (block.first_partial + task.first_part) * partial_size());
  // As threads take tasks in turn, this one's next is likely to be so many on.
  const Task& next = tasks_[static_cast<std::size_t>(std::max<std::int64_t>(number - pool_.threads(), 0))];
  for (std::int32_t i = 0; i < task.parts; ++i) {
    const Task here{task.block, task.first_part + i, 1};
    const Task following{task.block, here.first_part + 1, 1};
    attend_part(here, i + 1 < task.parts ? following : next, batch, cache, layer, q, i == 0 ? total : part,
                scratch + 2 * partial_size());
    if (i > 0) add(part, block.tokens * group(), total);
  }
  if (block.tasks == 1) write(block, total, out);
}

// The first keys of the `next` task are fetched meanwhile.
template <class T>
void PagedAttention<T>::attend_part(const Task& task, const Task& next, const Batch& batch, const KvCache& cache,
                                    std::int64_t layer, const T* q, const Partial& result, float* scratch) const {
  const auto run = [&]<class Stored>(void (*kernel)(const AttentionTile<T, Stored>&, const AttentionTile<T, Stored>&)) {
    const auto tile_of = [&](const Task& each) { return tile<Stored>(each, batch, cache, layer, q, result, scratch); };
    kernel(tile_of(task), tile_of(next));
  };
  if (cache.coded()) {
    run(kernels<T>().attend_codes);
  } else {
    run(kernels<T>().attend);
  }
}

template <class T>
template <class Stored>
AttentionTile<T, Stored> PagedAttention<T>::tile(const Task& task, const Batch& batch, const KvCache& cache,
                                                 std::int64_t layer, const T* q, const Partial& result,
                                                 float* scratch) const {
  const Block& block = blocks_[static_cast<std::size_t>(task.block)];
  const std::int64_t part = block.first_key + task.first_part * kPartKeys;
  const std::int64_t first_seen = rules_.first_seen(block.first_position) / kBlockKeys * kBlockKeys;
  return {.q = q + (block.first_row * heads_ + block.kv_head * group()) * head_dim_,
          .q_stride = heads_ * head_dim_,
          .tokens = block.tokens,
          .group = static_cast<int>(group()),
          .head_dim = head_dim_,
          .keys = cache.keys<Stored>(layer) + block.kv_head * head_dim_,
          .values = cache.value_offset(),
          .page_stride = cache.page_stride,
          .token_stride = cache.token_stride(),
          .scales = cache.coded() ? cache.key_scales(layer, block.kv_head) : nullptr,
          .value_scales = cache.value_scale_offset(),
          .scale_stride = cache.scale_stride,
          .pages = batch.pages.data() + batch.ranges[static_cast<std::size_t>(block.sequence)],
          .page_size = static_cast<int>(cache.page_size),
          .first_key = std::max(part, first_seen),
          .last_key = std::min(part + kPartKeys, block.first_position + block.tokens),
          .first_position = block.first_position,
          .window = rules_.window,
          .chunk = rules_.chunk,
          .scale = rules_.scale,
          .cap = rules_.cap,
          .scratch = scratch,
          .out = result.out,
          .maximum = result.maximum,
          .sum = result.sum};
}

template <class T>
typename PagedAttention<T>::Partial PagedAttention<T>::partial(float* memory) const {
  float* const maximum = memory + block_rows() * padded(head_dim_);
  return {.out = memory, .maximum = maximum, .sum = maximum + block_rows()};
}

template <class T>
void PagedAttention<T>::add(const Partial& other, std::int64_t rows, const Partial& total) const {
  const std::int64_t width = padded(head_dim_);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (other.sum[row] == 0) continue;  // none of its keys was visible
    const float maximum = std::max(total.maximum[row], other.maximum[row]);
    // One of the two is e^0, which need not be computed.
    const auto factor = [&](float own) { return own == maximum ? 1 : std::exp(own - maximum); };
    const float ours = factor(total.maximum[row]);
    const float theirs = factor(other.maximum[row]);
    for (std::int64_t j = row * width; j < (row + 1) * width; ++j) {
      total.out[j] = total.out[j] * ours + other.out[j] * theirs;
    }
    total.sum[row] = total.sum[row] * ours + other.sum[row] * theirs;
    total.maximum[row] = maximum;
  }
}

// Adds up the parts in the first one's place.
template <class T>
void PagedAttention<T>::merge(const Block& block, T* out) {
  const auto part = [&](std::int32_t i) {
    return partial(partials_.data() + (block.first_partial + i) * partial_size());
  };
  const Partial total = part(0);
  for (std::int32_t i = 1; i < block.parts; ++i) add(part(i), block.tokens * group(), total);
  write(block, total, out);
}

template <class T>
void PagedAttention<T>::write(const Block& block, const Partial& result, T* out) const {
  const auto narrow = kernels<T>().narrow;
  for (std::int64_t row = 0; row < block.tokens * group(); ++row) {
    const std::int64_t token = block.first_row + row / group();
    const std::int64_t head = block.kv_head * group() + row % group();
    narrow(result.out + row * padded(head_dim_), 1 / denominator(result, row, head), head_dim_,
           out + (token * heads_ + head) * head_dim_);
  }
}

template <class T>
float PagedAttention<T>::denominator(const Partial& result, std::int64_t row, std::int64_t head) const {
  if (rules_.sinks == nullptr) return result.sum[row];
  return result.sum[row] + std::exp(rules_.sinks[head] - result.maximum[row]);
}

template class PagedAttention<float>;
template class PagedAttention<BFloat16>;

}  // namespace unified
