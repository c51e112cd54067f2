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
  const Float16* scales = nullptr;      // [panels, inputs / group, kPanelOutputs]
  const std::uint8_t* zeros = nullptr;  // likewise
};

// A weight matrix [outputs, inputs] in panels (see kernels.h), of T or codes, and its bias [outputs] or null.
template <class T>
struct Weight {
  const std::uint8_t* panels;
  const T* bias;
  std::int64_t outputs;
  std::int64_t inputs;
  WeightCodes codes;

  std::int64_t bits() const { return codes.bits == 0 ? 8 * static_cast<std::int64_t>(sizeof(T)) : codes.bits; }
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

// Calls run(piece) on the pool's threads. A piece is a block of rows that stays in a near cache and some outputs: so
// many that memory streams, and as many as other pieces have, so that no thread waits for another's.
template <class T, class Run>
void for_pieces(ThreadPool& pool, std::int64_t rows, const Weight<T>& weight, Run run) {
  constexpr std::int64_t kRowBytes = 1 << 20;
  constexpr std::int64_t kWeightBytes = 512 << 10;
  constexpr std::int64_t kOutputs = 4 * kPanelOutputs;
  const std::int64_t row_step = round_up(kRowBytes / (weight.inputs * static_cast<std::int64_t>(sizeof(T))), 12);
  const std::int64_t units = (weight.outputs + kOutputs - 1) / kOutputs;
  const std::int64_t columns =
      std::min(units, round_up(weight.bytes(weight.inputs) * weight.outputs / kWeightBytes, pool.threads()));
  pool.run((rows + row_step - 1) / row_step * columns, [&](std::int64_t number, int /*thread*/) {
    const std::int64_t row = number / columns * row_step;
    const std::int64_t output = units * (number % columns) / columns * kOutputs;
    const std::int64_t end = std::min(units * (number % columns + 1) / columns * kOutputs, weight.outputs);
    run(Piece{row, std::min(row_step, rows - row), output, end - output});
  });
}

template <class T>
void linear_by_codes(ThreadPool& pool, const T* x, std::int64_t rows, const Weight<T>& weight, float* y,
                     bool accumulate) {
  thread_local std::vector<std::int8_t> codes;
  thread_local std::vector<float> scales;
  thread_local std::vector<std::int32_t> sums;
  const std::int64_t groups = weight.inputs / weight.codes.group;
  grow(codes, rows * weight.inputs);
  grow(scales, rows * groups);
  grow(sums, rows * groups);
  const CodedRows coded{codes.data(), scales.data(), sums.data(), weight.inputs, weight.codes.group};
  auto encode = [&](std::int64_t row, int /*thread*/) { kernels<T>().encode(x + row * weight.inputs, coded, row); };
  for_rows(pool, rows, weight.inputs, encode);
  const auto kernel = weight.codes.bits == 8 ? kernels<T>().linear_int8 : kernels<T>().linear_int4;
  for_pieces(pool, rows, weight, [&](const Piece& piece) {
    const std::int64_t scale = piece.output * groups;
    kernel({.x = {coded.codes + piece.row * weight.inputs, coded.scales + piece.row * groups,
                  coded.sums + piece.row * groups, weight.inputs, weight.codes.group},
            .rows = piece.rows,
            .panels = weight.panels + piece.output * weight.bytes(weight.inputs),
            .scales = weight.codes.scales + scale,
            .zeros = weight.codes.zeros + scale,
            .bias = weight.bias == nullptr ? nullptr : weight.bias + piece.output,
            .outputs = piece.outputs,
            .y = y + piece.row * weight.outputs + piece.output,
            .y_stride = weight.outputs,
            .accumulate = accumulate});
  });
}

// y [rows, outputs] (=, or += if `accumulate`) x [rows, inputs] times the transposed weight, plus the bias. A row's
// result depends on nothing but that row.
template <class T>
void linear(ThreadPool& pool, const T* x, std::int64_t rows, const Weight<T>& weight, float* y, bool accumulate) {
  if (weight.codes.bits != 0) return linear_by_codes(pool, x, rows, weight, y, accumulate);
  for_pieces(pool, rows, weight, [&](const Piece& piece) {
    const std::uint8_t* const panels = weight.panels + piece.output * weight.bytes(weight.inputs);
    kernels<T>().linear({.x = x + piece.row * weight.inputs,
                         .rows = piece.rows,
                         .panels = reinterpret_cast<const float*>(panels),
                         .bias = weight.bias == nullptr ? nullptr : weight.bias + piece.output,
                         .outputs = piece.outputs,
                         .inputs = weight.inputs,
                         .y = y + piece.row * weight.outputs + piece.output,
                         .y_stride = weight.outputs,
                         .accumulate = accumulate});
  });
}

}  // namespace unified
