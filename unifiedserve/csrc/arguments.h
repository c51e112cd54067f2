// What bound functions take besides plain tensors.
#pragma once

#include <optional>
#include <string>

#include "kv_cache.h"
#include "linear.h"
#include "tensor_view.h"

namespace unified {

template <class T>
T* as_or_null(const std::optional<TensorView>& tensor, std::string_view name, Shape shape) {
  return tensor ? tensor->as<T>(name, shape) : nullptr;
}

struct WeightTensors {
  TensorView matrix;
  std::optional<TensorView> bias;

  // Of argument `name`: a matrix [outputs, inputs] and a bias [outputs]. Throws as TensorView::as.
  template <class T>
  Weight<T> as(const std::string& name, Size& outputs, Size& inputs) const {
    const T* const elements = matrix.as<const T>(name + ".matrix", {outputs, inputs});
    const T* const summands = as_or_null<const T>(bias, name + ".bias", {outputs});
    return {elements, summands, outputs.value(), inputs.value()};
  }
};

// The cache, if it holds elements of T; else throws pybind11::type_error.
template <class T>
const KvCache& cache_of(const KvCache& cache) {
  if (cache.type != kElementType<T>) throw_wrong_type("cache", name_of(kElementType<T>), cache.type);
  return cache;
}

}  // namespace unified
