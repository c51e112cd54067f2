#pragma once

#include <cstdint>
#include <vector>

#include "batch.h"
#include "kv_cache.h"
#include "linear.h"
#include "native/all_reduce.h"
#include "paged_attention.h"
#include "thread_pool.h"

namespace unified {

struct DecoderShape {
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t intermediate;
  float epsilon;  // of the norms
  float scale;    // of the attention's scores

  std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// Pointers into the shared weights. Query, key and value matrices lie back to back, and gate and up, too.
template <class T>
struct DecoderLayer {
  const T* input_norm;
  Weight<T> qkv;
  const T* query_norm;  // of each head, or null
  const T* key_norm;
  Weight<T> output;
  const T* attention_norm;  // after attention
  Weight<T> gate_up;
  Weight<T> down;
};

// The layers of a llama-like decoder on a ragged batch. Sums over layers stay in float32. One call at a time.
//
// With `all_reduce` it is one of several ranks (tensor parallelism as in Megatron-LM, arXiv 1909.08053, section 3):
// each has some of the heads and of the inner columns, and the outputs of attention and MLP are sums over all ranks.
template <class T>
class Decoder {
 public:
  Decoder(ThreadPool& pool, const DecoderShape& shape, std::vector<DecoderLayer<T>> layers, const T* final_norm,
          native::AllReduce* all_reduce = nullptr);

  // Hidden states after the final norm of the wanted tokens, [wanted, hidden], from embeddings [tokens, width]; cosine
  // and sine are [tokens, head_dim]. Columns beyond the first `hidden` are added after the first layers, as many after
  // each. Writes all tokens' keys and values to the cache. Throws std::invalid_argument if the batch contradicts
  // itself, the cache does not fit, or there is something to be added after the last layer.
  void step(const T* embeds, std::int64_t width, const float* cosine, const float* sine, const Batch& batch,
            const KvCache& cache, T* hidden);

 private:
  struct Rotation {
    const float* cosine;
    const float* sine;
  };

  // Whether sums are added to the residual: of several ranks only the first one adds it.
  bool adds() const { return all_reduce_ == nullptr || all_reduce_->leads(); }
  bool is_last(std::int64_t index) const { return index + 1 == static_cast<std::int64_t>(layers_.size()); }
  void plan(const Batch& batch, const KvCache& cache);
  void widen_columns(const T* embeds, std::int64_t width, std::int64_t first, std::int64_t rows, float* out);
  void norm(std::int64_t rows, const T* weight, T* out);
  void rotate(std::int64_t index, const Rotation& rotation, const Batch& batch, const KvCache& cache);
  void rotate_row(std::int64_t index, float* qkv, const Rotation& rotation, const KvCache& cache, std::int64_t slot,
                  T* q) const;
  template <class Out>
  void rotate_heads(float* from, std::int64_t count, const T* norm, const Rotation& rotation, Out* out) const;
  void attend(std::int64_t index, const Batch& batch, const KvCache& cache);
  void gate(std::int64_t rows);
  void add(const T* x, std::int64_t rows, const Weight<T>& weight);

  ThreadPool& pool_;
  DecoderShape shape_;
  std::vector<DecoderLayer<T>> layers_;
  const T* final_norm_;
  native::AllReduce* all_reduce_;  // null: this rank is the only one
  std::int64_t qkv_width_;
  PagedAttention<T> attention_;

  // A row for each token of the largest batch yet.
  std::vector<float> residual_;
  std::vector<float> qkv_;
  std::vector<float> gate_up_;
  std::vector<T> normed_;
  std::vector<T> gated_;
  std::vector<T> q_;
  std::vector<T> attended_;
};

}  // namespace unified
