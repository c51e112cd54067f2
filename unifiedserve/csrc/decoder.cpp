#include "decoder.h"

#include <algorithm>
#include <stdexcept>
#include <type_traits>
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
                    const T* final_norm)
    : pool_(pool),
      shape_(shape),
      layers_(std::move(layers)),
      final_norm_(final_norm),
      qkv_width_(shape.qkv_width()),
      attention_(pool, shape.heads, shape.kv_heads, shape.head_dim, shape.scale),
      wide_row_(static_cast<std::size_t>(pool.threads() * std::max(qkv_width_, 2 * shape.intermediate))) {}

template <class T>
void Decoder<T>::step(const T* embeds, const float* cosine, const float* sine, const Batch& batch, const KvCache& cache,
                      T* hidden) {
  std::int64_t rows = batch.tokens();
  plan(batch, cache);
  grow(residual_, rows * shape_.hidden);
  grow(normed_, rows * shape_.hidden);
  grow(qkv_, rows * qkv_width_);
  grow(gate_up_, rows * 2 * shape_.intermediate);
  grow(gated_, rows * shape_.intermediate);
  grow(attended_, rows * shape_.heads * shape_.head_dim);
  kernels<T>().widen(embeds, rows * shape_.hidden, residual_.data());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const DecoderLayer<T>& layer = layers_[i];
    const auto index = static_cast<std::int64_t>(i);
    norm(rows, residual_.data(), nullptr, layer.input_norm, normed_.data());
    linear(pool_, normed_.data(), rows, layer.qkv, qkv_.data(), false);
    rotate(index, qkv_.data(), {cosine, sine}, batch, cache, q_.data());
    attend_rotated(index, batch, cache, attended_.data());
    if (is_last(index)) {
      rows = batch.wanted_tokens();
      keep_wanted(batch, shape_.hidden, residual_.data());
    }
    linear(pool_, attended_.data(), rows, layer.output, residual_.data(), true);
    norm(rows, residual_.data(), nullptr, layer.attention_norm, normed_.data());
    linear(pool_, normed_.data(), rows, layer.gate_up, gate_up_.data(), false);
    gate_rows(rows, gate_up_.data(), gated_.data());
    linear(pool_, gated_.data(), rows, layer.down, residual_.data(), true);
  }
  norm(rows, residual_.data(), nullptr, final_norm_, hidden);
}

template <class T>
void Decoder<T>::plan(const Batch& batch, const KvCache& cache) {
  batch.check(cache);
  if (cache.kv_heads != shape_.kv_heads || cache.head_dim != shape_.head_dim ||
      cache.layers != static_cast<std::int64_t>(layers_.size())) {
    throw std::invalid_argument("the KV cache has another model's layout");
  }
  attention_.plan(batch);
  grow(q_, batch.tokens() * shape_.heads * shape_.head_dim);
}

// Rows of `width` elements; few of them are done before another thread would be awake.
template <class T>
template <class Task>
void Decoder<T>::for_rows(std::int64_t rows, std::int64_t width, Task&& task) {
  constexpr std::int64_t kWorthSharing = 32 << 10;
  if (rows * width >= kWorthSharing) return pool_.run(rows, task);
  for (std::int64_t row = 0; row < rows; ++row) task(row, 0);
}

template <class T>
void Decoder<T>::norm(std::int64_t rows, float* residual, const T* delta, const T* weight, T* out) {
  for_rows(rows, shape_.hidden, [&](std::int64_t row, int /*thread*/) {
    const std::int64_t first = row * shape_.hidden;
    if (delta != nullptr) kernels<T>().add(residual + first, delta + first, shape_.hidden);
    kernels<T>().norm(residual + first, shape_.hidden, weight, shape_.epsilon, out + first);
  });
}

template <class T>
void Decoder<T>::attend(std::int64_t index, const T* qkv, const float* cosine, const float* sine, const Batch& batch,
                        const KvCache& cache, T* out) {
  rotate(index, qkv, {cosine, sine}, batch, cache, q_.data());
  attend_rotated(index, batch, cache, out);
}

// In the last layer, only queries of wanted tokens: of the others nothing but keys and values is needed.
template <class T>
void Decoder<T>::attend_rotated(std::int64_t index, const Batch& batch, const KvCache& cache, T* out) {
  const bool whole = !is_last(index) || batch.wanted_tokens() == batch.tokens();
  if (whole) return attention_.run(batch, cache, index, q_.data(), out);
  const Batch wanted = batch.wanted_only();
  keep_wanted(batch, shape_.heads * shape_.head_dim, q_.data());
  attention_.plan(wanted);
  attention_.run(wanted, cache, index, q_.data(), out);
}

template <class T>
void Decoder<T>::gate(std::int64_t rows, const T* gate_up, T* out) {
  gate_rows(rows, gate_up, out);
}

// The row itself where it is float32 and may be written, else a copy.
template <class T>
template <class In>
float* Decoder<T>::as_floats(In* row, std::int64_t n, int thread) {
  if constexpr (std::is_same_v<In, float>) {
    return row;
  } else {
    float* const wide = wide_row_.data() + thread * static_cast<std::int64_t>(wide_row_.size()) / pool_.threads();
    kernels<T>().widen(row, n, wide);
    return wide;
  }
}

template <class T>
template <class In>
void Decoder<T>::rotate(std::int64_t index, In* qkv, const Rotation& rotation, const Batch& batch, const KvCache& cache,
                        T* q) {
  const DecoderLayer<T>& layer = layers_[static_cast<std::size_t>(index)];
  for_rows(batch.tokens(), qkv_width_, [&](std::int64_t row, int thread) {
    rotate_row(layer, as_floats(qkv + row * qkv_width_, qkv_width_, thread), rotation.cosine + row * shape_.head_dim,
               rotation.sine + row * shape_.head_dim, q + row * shape_.heads * shape_.head_dim,
               cache.key<T>(index, batch.slots[static_cast<std::size_t>(row)]), cache.value_offset());
  });
}

template <class T>
void Decoder<T>::rotate_row(const DecoderLayer<T>& layer, float* qkv, const float* cosine, const float* sine, T* q,
                            T* key, std::int64_t value_offset) const {
  const std::int64_t n = shape_.head_dim;
  const auto heads = [&](float* from, std::int64_t count, const T* norm, T* to) {
    for (std::int64_t head = 0; head < count; ++head, from += n, to += n) {
      if (norm != nullptr) kernels<T>().norm_in_place(from, n, norm, shape_.epsilon);
      kernels<T>().rotate(from, cosine, sine, n, to);
    }
  };
  heads(qkv, shape_.heads, layer.query_norm, q);
  heads(qkv + shape_.heads * n, shape_.kv_heads, layer.key_norm, key);
  kernels<T>().narrow(qkv + (shape_.heads + shape_.kv_heads) * n, 1, shape_.kv_heads * n, key + value_offset);
}

template <class T>
template <class In>
void Decoder<T>::gate_rows(std::int64_t rows, In* gate_up, T* out) {
  const std::int64_t n = shape_.intermediate;
  for_rows(rows, n, [&](std::int64_t row, int thread) {
    const float* const gate = as_floats(gate_up + row * 2 * n, 2 * n, thread);
    kernels<T>().gate(gate, gate + n, n, out + row * n);
  });
}

template class Decoder<float>;
template class Decoder<BFloat16>;

}  // namespace unified
