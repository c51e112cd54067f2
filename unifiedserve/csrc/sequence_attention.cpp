#include "sequence_attention.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "selected_kernels.h"

namespace unified {

namespace {

// Queries of a sequence for all heads, one after the other.
struct Part {
  std::int64_t start;  // row of the sequence
  std::int64_t length;
  std::int64_t first;
  std::int64_t last;
};

void check(const SequenceGroup& group, std::int64_t rows) {
  const bool fits = group.start >= 0 && group.start <= rows && group.sequences >= 0 && group.length > 0 &&
                    group.sequences <= (rows - group.start) / group.length;
  if (fits) return;
  throw std::invalid_argument(std::to_string(group.sequences) + " sequences of " + std::to_string(group.length) +
                              " rows from row " + std::to_string(group.start) + " are not within " +
                              std::to_string(rows) + " rows");
}

std::vector<Part> parts_of(std::span<const SequenceGroup> groups) {
  std::vector<Part> parts;
  for (const auto& [start, sequences, length] : groups) {
    for (std::int64_t i = 0; i < sequences; ++i) {
      for (std::int64_t first = 0; first < length; first += kSequenceRows) {
        parts.push_back({start + i * length, length, first, std::min(first + kSequenceRows, length)});
      }
    }
  }
  return parts;
}

template <class T>
SequenceTile<T> tile_of(const QkvRows<T>& rows, const Part& part, std::int64_t head, float* scratch, T* out) {
  const std::int64_t width = rows.heads * rows.head_dim;
  const std::int64_t angles = part.start * (rows.head_dim / 2);
  return {.q = rows.qkv + part.start * 3 * width + head * rows.head_dim,
          .keys = width,
          .row_stride = 3 * width,
          .length = part.length,
          .first = part.first,
          .last = part.last,
          .head_dim = rows.head_dim,
          .cosine = rows.cosine + angles,
          .sine = rows.sine + angles,
          .scale = rows.scale,
          .scratch = scratch,
          .out = out + part.start * width + head * rows.head_dim,
          .out_stride = width};
}

}  // namespace

template <class T>
void attend_sequences(ThreadPool& pool, const QkvRows<T>& rows, std::span<const SequenceGroup> groups, T* out) {
  if (rows.head_dim % 2 != 0)
    throw std::invalid_argument("head_dim must be even, got " + std::to_string(rows.head_dim));
  for (const SequenceGroup& group : groups) check(group, rows.rows);
  const std::vector<Part> parts = parts_of(groups);
  const std::int64_t scratch_size = sequence_scratch(rows.head_dim);
  std::vector<float> scratch(static_cast<std::size_t>(pool.threads() * scratch_size));
  pool.run(static_cast<std::int64_t>(parts.size()) * rows.heads, [&](std::int64_t number, int thread) {
    const Part& part = parts[static_cast<std::size_t>(number / rows.heads)];
    kernels<T>().attend_sequence(tile_of(rows, part, number % rows.heads, scratch.data() + thread * scratch_size, out));
  });
}

template <class T>
void rms_norm(ThreadPool& pool, const T* x, std::int64_t rows, std::int64_t width, const T* weight, float epsilon,
              T* out) {
  constexpr std::int64_t kRowsATask = 16;
  pool.run((rows + kRowsATask - 1) / kRowsATask, [&](std::int64_t number, int /*thread*/) {
    const std::int64_t last = std::min((number + 1) * kRowsATask, rows);
    for (std::int64_t row = number * kRowsATask; row < last; ++row) {
      kernels<T>().norm_row(x + row * width, width, weight, epsilon, out + row * width);
    }
  });
}

template void attend_sequences(ThreadPool&, const QkvRows<float>&, std::span<const SequenceGroup>, float*);
template void attend_sequences(ThreadPool&, const QkvRows<BFloat16>&, std::span<const SequenceGroup>, BFloat16*);
template void rms_norm(ThreadPool&, const float*, std::int64_t, std::int64_t, const float*, float, float*);
template void rms_norm(ThreadPool&, const BFloat16*, std::int64_t, std::int64_t, const BFloat16*, float, BFloat16*);

}  // namespace unified
