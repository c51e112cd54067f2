#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "scratch.h"
#include "selected_kernels.h"
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

// The next multiple of `unit`, at least one.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return std::max((value + unit - 1) / unit, std::int64_t{1}) * unit;
}

// For many rows: x as panels, each of which meets a few outputs at a time.
template <class T>
void linear_by_panels(ThreadPool& pool, const T* x, std::int64_t rows, const Weight<T>& weight, float* y,
                      bool accumulate) {
  thread_local std::vector<float> memory;
  const std::int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
  const std::int64_t blocks = (weight.outputs + kPanelOutputs - 1) / kPanelOutputs;
  const std::int64_t panel_size = weight.inputs * static_cast<std::int64_t>(sizeof(T)) / 4 * kPanelRows;
  grow(memory, panels * panel_size);
  float* const packed = memory.data();
  const auto rows_of = [&](std::int64_t panel) { return std::min(kPanelRows, rows - panel * kPanelRows); };
  pool.run(panels, [&](std::int64_t panel, int /*thread*/) {
    kernels<T>().pack_panel(x + panel * kPanelRows * weight.inputs, rows_of(panel), weight.inputs,
                            packed + panel * panel_size);
  });
  pool.run(blocks * panels, [&](std::int64_t number, int /*thread*/) {
    const std::int64_t panel = number % panels;
    const std::int64_t output = number / panels * kPanelOutputs;
    kernels<T>().multiply_panel({.panel = packed + panel * panel_size,
                                 .rows = rows_of(panel),
                                 .weight = weight.matrix + output * weight.inputs,
                                 .bias = weight.bias == nullptr ? nullptr : weight.bias + output,
                                 .outputs = std::min(kPanelOutputs, weight.outputs - output),
                                 .inputs = weight.inputs,
                                 .y = y + panel * kPanelRows * weight.outputs + output,
                                 .y_stride = weight.outputs,
                                 .accumulate = accumulate});
  });
}

// y [rows, outputs] (=, or += if `accumulate`) x [rows, inputs] times the transposed weight, plus the bias.
//
// A task is a block of rows that fits into the second-level cache and some outputs: so many that memory streams, but a
// few tasks for each thread. Below kManyRows a row's result does not depend on how many there are; in float32 it never
// does.
template <class T>
void linear(ThreadPool& pool, const T* x, std::int64_t rows, const Weight<T>& weight, float* y, bool accumulate) {
  constexpr std::int64_t kManyRows = 64;
  if (rows >= kManyRows && weight.inputs % 2 == 0 && kernels<T>().multiply_panel != nullptr) {
    return linear_by_panels(pool, x, rows, weight, y, accumulate);
  }
  constexpr std::int64_t kRowBytes = 512 << 10;
  constexpr std::int64_t kWeightBytes = 256 << 10;
  const std::int64_t share = weight.outputs / (4 * static_cast<std::int64_t>(pool.threads()));
  const auto row_bytes = weight.inputs * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t row_step = round_up(kRowBytes / row_bytes, 12);
  const std::int64_t output_step = round_up(std::min(kWeightBytes / row_bytes, share), 12);
  const std::int64_t columns = (weight.outputs + output_step - 1) / output_step;
  // In parts of which a few rows fit into the first-level cache.
  constexpr std::int64_t kInputs = (4 << 10) / sizeof(T);
  const std::int64_t parts = std::max((weight.inputs + kInputs / 2) / kInputs, std::int64_t{1});
  const std::int64_t input_step = round_up((weight.inputs + parts - 1) / parts, 64);
  const auto kernel = kernels<T>().linear;
  pool.run((rows + row_step - 1) / row_step * columns, [&](std::int64_t number, int /*thread*/) {
    const std::int64_t row = number / columns * row_step;
    const std::int64_t output = number % columns * output_step;
    for (std::int64_t input = 0; input < weight.inputs; input += input_step) {
      kernel({.x = x + row * weight.inputs + input,
              .rows = std::min(row_step, rows - row),
              .weight = weight.matrix + output * weight.inputs + input,
              .bias = weight.bias == nullptr || input > 0 ? nullptr : weight.bias + output,
              .outputs = std::min(output_step, weight.outputs - output),
              .inputs = std::min(input_step, weight.inputs - input),
              .stride = weight.inputs,
              .y = y + row * weight.outputs + output,
              .y_stride = weight.outputs,
              .accumulate = accumulate || input > 0});
    }
  });
}

}  // namespace unified
