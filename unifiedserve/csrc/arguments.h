// What bound functions take besides plain tensors.
#pragma once

#include <optional>
#include <string>
#include <type_traits>

#include "kv_cache.h"
#include "linear.h"
#include "tensor_view.h"

namespace unified {

template <class T>
T* as_or_null(const std::optional<TensorView>& tensor, std::string_view name, Shape shape) {
  return tensor ? tensor->as<T>(name, shape) : nullptr;
}

// The codes of a weight, and what they mean.
struct CodeTensors {
  TensorView scales;
  TensorView zeros;
};

// A weight [outputs, inputs] in panels (see kernels.h), of values or codes, and its bias [outputs]. Values of bfloat16
// are a weight for float, too.
struct WeightTensors {
  TensorView panels;
  std::int64_t outputs;
  std::int64_t inputs;
  std::optional<TensorView> bias;
  std::optional<CodeTensors> codes;

  // Of argument `name`, which is to be [rows, columns]. Throws as TensorView::as.
  template <class T>
  Weight<T> as(const std::string& name, Size& rows, Size& columns) const {
    check_shape(name, rows, columns);
    const T* const summands = as_or_null<const T>(bias, name + ".bias", {rows});
    if (codes) return {code_panels(name), summands, outputs, inputs, weight_codes(name)};
    const bool narrow = std::is_same_v<T, float> && panels.type() == kElementType<BFloat16>;
    const std::uint8_t* const matrix = narrow ? value_panels<BFloat16>(name) : value_panels<T>(name);
    return {matrix, summands, outputs, inputs, {}, narrow};
  }

  std::int64_t panel_count() const { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }

 private:
  template <class Value>
  const std::uint8_t* value_panels(const std::string& name) const {
    constexpr std::int64_t kValues = 4 / sizeof(Value);
    if (inputs % kValues != 0) throw_odd(name);
    Size number("panels", panel_count());
    Size lanes("lanes", inputs / kValues);
    Size of_panel("outputs of a panel", kPanelOutputs);
    Size values("values", kValues);
    const auto* const matrix = panels.as<const Value>(name + ".panels", {number, lanes, of_panel, values});
    return reinterpret_cast<const std::uint8_t*>(matrix);
  }

  void check_shape(const std::string& name, Size& rows, Size& columns) const;
  [[noreturn]] void throw_odd(const std::string& name) const;
  int bits() const { return panels.size(1) * 8 == inputs ? 4 : 8; }
  const std::uint8_t* code_panels(const std::string& name) const;
  WeightCodes weight_codes(const std::string& name) const;
  Zeros zeros_of(const std::string& name, Size& number, Size& groups) const;
};

// The cache, if it holds elements of T or codes; else throws pybind11::type_error.
template <class T>
const KvCache& cache_of(const KvCache& cache) {
  if (!cache.coded() && cache.type != kElementType<T>) throw_wrong_type("cache", name_of(kElementType<T>), cache.type);
  return cache;
}

}  // namespace unified
