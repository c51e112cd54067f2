#pragma once

#include <cstdint>
#include <span>

#include "thread_pool.h"

namespace unified {

// Sequences of `length` rows each, one after the other from row `start` on.
struct SequenceGroup {
  std::int64_t start;
  std::int64_t sequences;
  std::int64_t length;
};

// Queries, keys and values before rotation.
template <class T>
struct QkvRows {
  const T* qkv;  // [rows, 3, heads, head_dim]
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t head_dim;
  const float* cosine;  // [rows, head_dim / 2]
  const float* sine;
  float scale;
};

// Attention among the rows of each sequence to out [rows, heads, head_dim]; rows of no sequence are left as they are.
// A sequence's result does not depend on the others. Throws std::invalid_argument for an odd head_dim, and for groups
// outside the rows.
template <class T>
void attend_sequences(ThreadPool& pool, const QkvRows<T>& rows, std::span<const SequenceGroup> groups, T* out);

// Each of x [rows, width] by its root mean square, times weight [width], to out.
template <class T>
void rms_norm(ThreadPool& pool, const T* x, std::int64_t rows, std::int64_t width, const T* weight, float epsilon,
              T* out);

}  // namespace unified
