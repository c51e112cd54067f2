#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels.h"
#include "thread_pool.h"

namespace unified {

// A weight matrix [outputs, inputs] as in the checkpoint, and its bias [outputs] or null.
template <class T>
struct Weight {
  const T* matrix;
  const T* bias;
  std::int64_t outputs;
  std::int64_t inputs;
};

// y [rows, outputs] (=, or += if `accumulate`) x [rows, inputs] times the transposed weight, plus the bias.
template <class T>
void linear(ThreadPool& pool, const T* x, std::int64_t rows, const Weight<T>& weight, float* y, bool accumulate) {
  constexpr std::int64_t kTaskBytes = 64 << 10;
  constexpr std::int64_t kMultiple = 4;
  const auto row_bytes = weight.inputs * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t step = std::max(kTaskBytes / row_bytes / kMultiple, std::int64_t{1}) * kMultiple;
  const auto kernel = kernels<T>().linear;
  pool.run((weight.outputs + step - 1) / step, [&](std::int64_t number, int /*thread*/) {
    const std::int64_t first = number * step;
    kernel({.x = x,
            .rows = rows,
            .weight = weight.matrix + first * weight.inputs,
            .bias = weight.bias == nullptr ? nullptr : weight.bias + first,
            .outputs = std::min(step, weight.outputs - first),
            .inputs = weight.inputs,
            .y = y + first,
            .y_stride = weight.outputs,
            .accumulate = accumulate});
  });
}

}  // namespace unified
