#include "decoder.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "scratch.h"
#include "selected_kernels.h"

namespace unified {

namespace {

// Moves the rows of the wanted tokens to the front.
template <class Element>
void keep_wanted(const Batch& batch, std::int64_t width, Element* rows) {
  for (std::size_t i = 0; i < batch.kv_lens.size(); ++i) {
    const std::int64_t count = batch.wanted[i + 1] - batch.wanted[i];
    const Element* const from = rows + (batch.rows[i + 1] - count) * width;
    Element* const to = rows + batch.wanted[i] * width;
    if (from != to) std::copy(from, from + count * width, to);
  }
}

}  // namespace

template <class T>
Decoder<T>::Decoder(ThreadPool& pool, const DecoderShape& shape, std::vector<DecoderLayer<T>> layers,
                    const T* final_norm, native::AllReduce* all_reduce)
    : pool_(pool),
      shape_(shape),
      layers_(std::move(layers)),
      final_norm_(final_norm),
      all_reduce_(all_reduce),
      qkv_width_(shape.qkv_width()),
      attention_(pool, shape.heads, shape.kv_heads, shape.head_dim, {.scale = shape.scale}) {
  if (adds()) return;
  for (DecoderLayer<T>& layer : layers_) layer.output.bias = layer.down.bias = nullptr;  // the first rank adds them
}

template <class T>
void Decoder<T>::step(const T* embeds, std::int64_t width, const float* cosine, const float* sine, const Batch& batch,
                      const KvCache& cache, T* hidden) {
  const std::int64_t added = width / shape_.hidden - 1;
  if (added >= static_cast<std::int64_t>(layers_.size())) {
    throw std::invalid_argument("there is no layer after which all columns of the embeddings could be added");
  }
  std::int64_t rows = batch.tokens();
  plan(batch, cache);
  widen_columns(embeds, width, 0, rows, residual_.data());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const DecoderLayer<T>& layer = layers_[i];
    const auto index = static_cast<std::int64_t>(i);
    norm(rows, layer.input_norm, normed_.data());
    linear(pool_, normed_.data(), rows, layer.qkv, qkv_.data(), false);
    rotate(index, {cosine, sine}, batch, cache);
    attend(index, batch, cache);
    if (is_last(index)) {
      rows = batch.wanted_tokens();
      keep_wanted(batch, shape_.hidden, residual_.data());
    }
    add(attended_.data(), rows, layer.output);
    norm(rows, layer.attention_norm, normed_.data());
    linear(pool_, normed_.data(), rows, layer.gate_up, gate_up_.data(), false);
    gate(rows);
    add(gated_.data(), rows, layer.down);
    if (index < added) {
      widen_columns(embeds, width, (index + 1) * shape_.hidden, rows, qkv_.data());
      for (std::int64_t j = 0; j < rows * shape_.hidden; ++j) {
        residual_[static_cast<std::size_t>(j)] += qkv_[static_cast<std::size_t>(j)];
      }
    }
  }
  norm(rows, final_norm_, hidden);
}

template <class T>
void Decoder<T>::plan(const Batch& batch, const KvCache& cache) {
  batch.check(cache);
  if (cache.kv_heads != shape_.kv_heads || cache.head_dim != shape_.head_dim ||
      cache.layers != static_cast<std::int64_t>(layers_.size())) {
    throw std::invalid_argument("the KV cache has another model's layout");
  }
  attention_.plan(batch);
  const std::int64_t rows = batch.tokens();
  grow(residual_, rows * shape_.hidden);
  grow(normed_, rows * shape_.hidden);
  grow(qkv_, rows * std::max(qkv_width_, shape_.hidden));
  grow(q_, rows * shape_.heads * shape_.head_dim);
  grow(attended_, rows * shape_.heads * shape_.head_dim);
  grow(gate_up_, rows * 2 * shape_.intermediate);
  grow(gated_, rows * shape_.intermediate);
}

// The columns [first, first + hidden) of embeddings of `width`.
template <class T>
void Decoder<T>::widen_columns(const T* embeds, std::int64_t width, std::int64_t first, std::int64_t rows, float* out) {
  for_rows(pool_, rows, shape_.hidden, [&](std::int64_t row, int /*thread*/) {
    kernels<T>().widen(embeds + row * width + first, shape_.hidden, out + row * shape_.hidden);
  });
}

template <class T>
void Decoder<T>::norm(std::int64_t rows, const T* weight, T* out) {
  for_rows(pool_, rows, shape_.hidden, [&](std::int64_t row, int /*thread*/) {
    const std::int64_t first = row * shape_.hidden;
    kernels<T>().norm(residual_.data() + first, shape_.hidden, weight, shape_.epsilon, out + first);
  });
}

// In the last layer, only queries of wanted tokens: of the others nothing but keys and values is needed.
template <class T>
void Decoder<T>::attend(std::int64_t index, const Batch& batch, const KvCache& cache) {
  const bool whole = !is_last(index) || batch.wanted_tokens() == batch.tokens();
  if (whole) return attention_.run(batch, cache, index, q_.data(), attended_.data());
  const Batch wanted = batch.wanted_only();
  keep_wanted(batch, shape_.heads * shape_.head_dim, q_.data());
  attention_.plan(wanted);
  attention_.run(wanted, cache, index, q_.data(), attended_.data());
}

template <class T>
void Decoder<T>::rotate(std::int64_t index, const Rotation& rotation, const Batch& batch, const KvCache& cache) {
  for_rows(pool_, batch.tokens(), qkv_width_, [&](std::int64_t row, int /*thread*/) {
    const std::int64_t angle = row * shape_.head_dim;
    rotate_row(index, qkv_.data() + row * qkv_width_, {rotation.cosine + angle, rotation.sine + angle}, cache,
               batch.slots[static_cast<std::size_t>(row)], q_.data() + row * shape_.heads * shape_.head_dim);
  });
}

template <class T>
void Decoder<T>::rotate_row(std::int64_t index, float* qkv, const Rotation& rotation, const KvCache& cache,
                            std::int64_t slot, T* q) const {
  const DecoderLayer<T>& layer = layers_[static_cast<std::size_t>(index)];
  const std::int64_t width = shape_.kv_heads * shape_.head_dim;
  float* const key = qkv + shape_.heads * shape_.head_dim;
  const float* const value = key + width;
  rotate_heads(qkv, shape_.heads, layer.query_norm, rotation, q);
  if (cache.coded()) {
    rotate_heads(key, shape_.kv_heads, layer.key_norm, rotation, key);
    cache.store_codes(index, slot, key, value);
  } else {
    T* const stored = cache.key<T>(index, slot);
    rotate_heads(key, shape_.kv_heads, layer.key_norm, rotation, stored);
    kernels<T>().narrow(value, 1, width, stored + cache.value_offset());
  }
}

// `out` may be `from`.
template <class T>
template <class Out>
void Decoder<T>::rotate_heads(float* from, std::int64_t count, const T* norm, const Rotation& rotation,
                              Out* out) const {
  const std::int64_t n = shape_.head_dim;
  for (std::int64_t head = 0; head < count; ++head, from += n, out += n) {
    if (norm != nullptr) kernels<T>().norm_in_place(from, n, norm, shape_.epsilon);
    kernels<Out>().rotate(from, rotation.cosine, rotation.sine, n, out);
  }
}

template <class T>
void Decoder<T>::gate(std::int64_t rows) {
  const std::int64_t n = shape_.intermediate;
  for_rows(pool_, rows, n, [&](std::int64_t row, int /*thread*/) {
    const float* const from = gate_up_.data() + row * 2 * n;
    kernels<T>().gate(from, from + n, n, gated_.data() + row * n);
  });
}

// Adds a product to the residual. Of several ranks the first one adds its part to it, and the others' sums come in.
template <class T>
void Decoder<T>::add(const T* x, std::int64_t rows, const Weight<T>& weight) {
  linear(pool_, x, rows, weight, residual_.data(), adds());
  if (all_reduce_ == nullptr) return;
  all_reduce_->sum({residual_.data(), static_cast<std::size_t>(rows * shape_.hidden)});
}

template class Decoder<float>;
template class Decoder<BFloat16>;

}  // namespace unified
