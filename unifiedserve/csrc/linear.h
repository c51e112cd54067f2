#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "scratch.h"
#include "selected_kernels.h"
#include "thread_pool.h"

namespace unified {

// Codes of 4 or 8 bits: a weight is (code - zero) * scale, of which `group` inputs of an output have one.
struct WeightCodes {
  int bits = 0;  // 0: the weights are no codes
  std::int64_t group = 0;
  const Float16* scales = nullptr;  // [panels, inputs / group, kPanelOutputs]
  Zeros zeros;                      // likewise, any numbers
};

// A weight matrix [outputs, inputs] in panels (see kernels.h), of T, of bfloat16 where T is float, or of codes, and its
// bias [outputs] or null.
template <class T>
struct Weight {
  const std::uint8_t* panels;
  const T* bias;
  std::int64_t outputs;
  std::int64_t inputs;
  WeightCodes codes;
  bool narrow = false;  // of bfloat16 where T is float

  std::int64_t bits() const {
    if (codes.bits != 0) return codes.bits;
    return 8 * static_cast<std::int64_t>(narrow ? sizeof(BFloat16) : sizeof(T));
  }
  // Of so many inputs of an output.
  std::int64_t bytes(std::int64_t count) const { return count * bits() / 8; }
};

// The next multiple of `unit`, at least one.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return std::max((value + unit - 1) / unit, std::int64_t{1}) * unit;
}

// Rows and outputs of a product.
struct Piece {
  std::int64_t row;
  std::int64_t rows;
  std::int64_t output;
  std::int64_t outputs;
};

// How a product is cut: rows into blocks of so many, and whole units of outputs into at most so many equal columns.
struct Division {
  std::int64_t block_rows;
  std::int64_t unit;
  std::int64_t columns;
};

// Into equal blocks of rows that stay in a near cache, and so many outputs that memory streams. All threads have as
// many, so that none waits for another's.
template <class T>
Division by_whole_rows(const ThreadPool& pool, std::int64_t rows, const Weight<T>& weight) {
  constexpr std::int64_t kRowBytes = 1 << 20;
  constexpr std::int64_t kWeightBytes = 2 << 20;
  const std::int64_t blocks =
      round_up(rows * weight.inputs * static_cast<std::int64_t>(sizeof(T)), kRowBytes) / kRowBytes;
  return {round_up((rows + blocks - 1) / blocks, 12), 4 * kPanelOutputs,
          round_up(weight.bytes(weight.inputs) * weight.outputs / kWeightBytes, pool.threads())};
}

// For kernels that go through the inputs in parts: into so many rows and outputs that neither are read too often.
template <class T>
Division by_parts_of_rows(const ThreadPool& pool, std::int64_t rows, const Weight<T>& weight) {
  constexpr std::int64_t kMost = 256;
  constexpr std::int64_t kUnit = 2 * kPanelOutputs;  // of outputs and of rows, that AMX's registers take at once
  const std::int64_t blocks = (rows + kMost - 1) / kMost;
  return {round_up((rows + blocks - 1) / blocks, kUnit), kUnit, round_up(weight.outputs / kMost, pool.threads())};
}

// Into pieces whose sums stay, beside what they are made of, in a near cache.
template <class T>
Division by_kept_sums(const ThreadPool& pool, std::int64_t rows, const Weight<T>& weight) {
  constexpr std::int64_t kMost = 256;
  const std::int64_t blocks = (rows + kMost - 1) / kMost;
  return {round_up((rows + blocks - 1) / blocks, 12), 4 * kPanelOutputs,
          round_up(weight.outputs / kMost, pool.threads())};
}

// Calls run(piece) on the pool's threads.
template <class Run>
void for_pieces(ThreadPool& pool, std::int64_t rows, std::int64_t outputs, const Division& division, Run run) {
  const std::int64_t units = (outputs + division.unit - 1) / division.unit;
  const std::int64_t columns = std::min(units, division.columns);
  const std::int64_t blocks = (rows + division.block_rows - 1) / division.block_rows;
  // The columns of more units come first, so that threads end together.
  const auto start = [&](std::int64_t column) {
    return std::min((units / columns * column + std::min(column, units % columns)) * division.unit, outputs);
  };
  pool.run(blocks * columns, [&](std::int64_t number, int /*thread*/) {
    const std::int64_t row = number / columns * division.block_rows;
    const std::int64_t column = number % columns;
    const std::int64_t output = start(column);
    run(Piece{row, std::min(division.block_rows, rows - row), output, start(column + 1) - output});
  });
}

// The rows as codes in groups like the weight's; they stay until the calling thread's next call.
template <class T>
CodedRows encoded(ThreadPool& pool, const T* x, std::int64_t rows, const Weight<T>& weight) {
  thread_local std::vector<std::int8_t> codes;
  thread_local std::vector<float> scales;
  thread_local std::vector<float> sums;
  const std::int64_t groups = weight.inputs / weight.codes.group;
  grow(codes, rows * weight.inputs);
  grow(scales, rows * groups);
  grow(sums, rows * groups);
  const Zeros& zeros = weight.codes.zeros;
  const CodedRows coded{codes.data(),  scales.data(),      sums.data(),
                        weight.inputs, weight.codes.group, zeros.step == 0 ? zeros.first : nullptr};
  auto encode = [&](std::int64_t row, int /*thread*/) { kernels<T>().encode(x + row * weight.inputs, coded, row); };
  for_rows(pool, rows, weight.inputs, encode);
  return coded;
}

// Where a piece's sums go.
struct Sums {
  float* y;
  std::int64_t stride;
  bool accumulate;
};

template <class T>
void linear_piece(const T* x, const Weight<T>& weight, const Piece& piece, const Sums& sums) {
  const std::uint8_t* const panels = weight.panels + piece.output * weight.bytes(weight.inputs);
  const auto kernel = weight.narrow ? kernels<T>().linear_narrow : kernels<T>().linear;
  kernel({.x = x + piece.row * weight.inputs,
          .rows = piece.rows,
          .panels = reinterpret_cast<const float*>(panels),
          .bias = weight.bias == nullptr ? nullptr : weight.bias + piece.output,
          .outputs = piece.outputs,
          .inputs = weight.inputs,
          .y = sums.y,
          .y_stride = sums.stride,
          .accumulate = sums.accumulate});
}

template <class T>
void linear_piece(const CodedRows& x, const Weight<T>& weight, const Piece& piece, const Sums& sums) {
  const std::int64_t groups = x.inputs / x.group;
  const std::int64_t before = piece.output / kPanelOutputs * groups;
  const auto kernel = weight.codes.bits == 8 ? kernels<T>().linear_int8 : kernels<T>().linear_int4;
  kernel({.x = {x.codes + piece.row * x.inputs, x.scales + piece.row * groups, x.sums + piece.row * groups, x.inputs,
                x.group, x.zero},
          .rows = piece.rows,
          .panels = weight.panels + piece.output * weight.bytes(weight.inputs),
          .scales = weight.codes.scales + before * kPanelOutputs,
          .zeros = weight.codes.zeros.behind(before),
          .bias = weight.bias == nullptr ? nullptr : weight.bias + piece.output,
          .outputs = piece.outputs,
          .y = sums.y,
          .y_stride = sums.stride,
          .accumulate = sums.accumulate});
}

// y [rows, outputs] (=, or += if `accumulate`) x [rows, inputs] times the transposed weight, plus the bias. A row's
// result depends on nothing but that row and the instruction set: no bit of it on other rows or on threads.
template <class T>
void linear(ThreadPool& pool, const T* x, std::int64_t rows, const Weight<T>& weight, float* y, bool accumulate) {
  if (rows == 0) return;  // which no division can be made of
  const auto run = [&](const auto& from, const Division& division) {
    for_pieces(pool, rows, weight.outputs, division, [&](const Piece& piece) {
      linear_piece(from, weight, piece, {y + piece.row * weight.outputs + piece.output, weight.outputs, accumulate});
    });
  };
  const auto divided = [&](bool in_parts) {
    return in_parts ? by_parts_of_rows(pool, rows, weight) : by_whole_rows(pool, rows, weight);
  };
  if (weight.codes.bits == 0) return run(x, divided(kernels<T>().linear_in_parts));
  const auto in_parts = kernels<T>().codes_in_parts;
  run(encoded(pool, x, rows, weight), divided(in_parts != nullptr && in_parts(rows, weight.codes.group)));
}

// y [rows, outputs] = step(x [rows, inputs] times the transposed weight, plus the bias), rounded once; `other` is
// [rows, outputs] where the step takes one, and may be y. Sums are in float32 as above, the same ones.
template <class T>
void linear_then(ThreadPool& pool, const T* x, std::int64_t rows, const Weight<T>& weight, Step step, const T* other,
                 T* y) {
  if (rows == 0) return;
  const auto run = [&](const auto& from) {
    for_pieces(pool, rows, weight.outputs, by_kept_sums(pool, rows, weight), [&](const Piece& piece) {
      thread_local std::vector<float> sums;
      grow(sums, piece.rows * piece.outputs);
      linear_piece(from, weight, piece, {sums.data(), piece.outputs, false});
      for (std::int64_t row = 0; row < piece.rows; ++row) {
        const std::int64_t first = (piece.row + row) * weight.outputs + piece.output;
        kernels<T>().finish(sums.data() + row * piece.outputs, other == nullptr ? nullptr : other + first, step,
                            piece.outputs, y + first);
      }
    });
  };
  if (weight.codes.bits != 0) return run(encoded(pool, x, rows, weight));
  run(x);
}

}  // namespace unified
