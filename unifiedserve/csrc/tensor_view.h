#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "element_type.h"
#include "native/dlpack.h"

namespace unified {

namespace dlpack = native::dlpack;

// A size in the shapes that a call expects: known beforehand, or taken from the first tensor that has it.
class Size {
 public:
  explicit Size(std::string_view name, std::int64_t value = kUnknown) : name_(name), value_(value) {}

  bool matches(std::int64_t size) {
    if (value_ == kUnknown) value_ = size;
    return size == value_;
  }
  std::int64_t value() const { return value_; }
  // "rows", or "rows=3" once it is known.
  std::string text() const;

 private:
  static constexpr std::int64_t kUnknown = -1;

  std::string_view name_;
  std::int64_t value_;
};

using Shape = std::initializer_list<std::reference_wrapper<Size>>;

// Rows along a tensor's first dimension, each contiguous, and the elements from one to the next.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;
};

// A tensor argument, as DLPack describes it. Does not keep the tensor alive.
class TensorView {
 public:
  TensorView() = default;
  // Throws std::invalid_argument for more than kMaxDimensions.
  explicit TensorView(const dlpack::Tensor& tensor);

  ElementType type() const { return type_; }
  std::int64_t size(int dimension) const { return shape_.at(static_cast<std::size_t>(dimension)); }

  // The elements of argument `name`, which must be a contiguous tensor of T in this process's memory, of this shape.
  // Throws pybind11::type_error for another type, std::invalid_argument for all else.
  template <class T>
  T* as(std::string_view name, Shape shape) const {
    check(name, kElementType<T>, shape);
    return static_cast<T*>(data_);
  }
  // The same for one whose entries of the first dimension may lie at a distance.
  template <class T>
  Rows<T> rows(std::string_view name, Shape shape) const {
    check(name, kElementType<T>, shape, 1);
    return {static_cast<T*>(data_), strides_[0]};
  }
  // The same for one dimension of any size.
  template <class T>
  std::span<const T> vector(std::string_view name) const {
    Size count("n");
    const T* const data = as<const T>(name, {count});
    return {data, static_cast<std::size_t>(count.value())};
  }

 private:
  static constexpr std::size_t kMaxDimensions = 8;

  // Of the first `loose` dimensions strides may be any.
  void check(std::string_view name, ElementType type, Shape shape, std::size_t loose = 0) const;
  bool has(Shape shape) const;
  bool is_contiguous(std::size_t loose) const;
  std::span<const std::int64_t> shape() const { return std::span(shape_).first(dimensions_); }
  std::span<const std::int64_t> strides() const { return std::span(strides_).first(dimensions_); }

  void* data_ = nullptr;
  dlpack::Device device_{dlpack::DeviceType::cpu, 0};
  ElementType type_{};
  std::size_t dimensions_ = 0;
  std::array<std::int64_t, kMaxDimensions> shape_{};
  std::array<std::int64_t, kMaxDimensions> strides_{};
};

[[noreturn]] void throw_wrong_type(std::string_view name, std::string_view expected, ElementType type);

// Calls `call.operator()<T>()` with the type of weights and activations that `type` is; throws pybind11::type_error,
// naming the argument `name`, for one that the kernels do not know.
template <class Call>
decltype(auto) with_element_type(ElementType type, std::string_view name, Call&& call) {
  if (type == kElementType<float>) return call.template operator()<float>();
  if (type == kElementType<BFloat16>) return call.template operator()<BFloat16>();
  throw_wrong_type(name, "float32 or bfloat16", type);
}

}  // namespace unified
