#include "tensor_view.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>

namespace unified {

namespace {

template <class Range, class Text>
std::string in_brackets(const Range& range, Text&& text) {
  std::string joined;
  for (const auto& each : range) {
    if (!joined.empty()) joined += ", ";
    joined += text(each);
  }
  return "[" + joined + "]";
}

std::string in_brackets(std::span<const std::int64_t> numbers) {
  return in_brackets(numbers, [](std::int64_t number) { return std::to_string(number); });
}

std::string name_of(dlpack::Device device) {
  using enum dlpack::DeviceType;
  if (device.type == cuda || device.type == cuda_managed) return "cuda:" + std::to_string(device.id);
  return "device type " + std::to_string(static_cast<std::int32_t>(device.type));
}

[[noreturn]] void refuse(std::string_view name, const std::string& expected, const std::string& got) {
  throw std::invalid_argument(std::string(name) + ": expected " + expected + ", got " + got);
}

}  // namespace

std::string name_of(ElementType type) {
  static constexpr std::array kKinds{"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  const std::string kind = type.code < kKinds.size() ? kKinds[type.code] : "type" + std::to_string(type.code) + "_";
  const std::string lanes = type.lanes == 1 ? "" : "x" + std::to_string(type.lanes);
  return kind == "bool" ? kind + lanes : kind + std::to_string(type.bits) + lanes;
}

std::string Size::text() const {
  return value_ == kUnknown ? std::string(name_) : std::string(name_) + "=" + std::to_string(value_);
}

TensorView::TensorView(const dlpack::Tensor& tensor)
    : data_(static_cast<std::byte*>(tensor.data) + tensor.byte_offset),
      device_(tensor.device),
      type_(tensor.type),
      dimensions_(static_cast<std::size_t>(tensor.dimensions)) {
  if (dimensions_ > kMaxDimensions) {
    throw std::invalid_argument("a tensor of " + std::to_string(dimensions_) + " dimensions, expected at most " +
                                std::to_string(kMaxDimensions));
  }
  std::copy_n(tensor.shape, dimensions_, shape_.begin());
  if (tensor.strides != nullptr) {
    std::copy_n(tensor.strides, dimensions_, strides_.begin());
    return;
  }
  std::int64_t stride = 1;
  for (std::size_t i = dimensions_; i-- > 0; stride *= shape_[i]) strides_[i] = stride;
}

bool TensorView::has(Shape expected) const {
  return std::ranges::equal(expected, shape(), [](Size& size, std::int64_t got) { return size.matches(got); });
}

bool TensorView::is_contiguous(std::size_t loose) const {
  if (std::ranges::count(shape(), 0) > 0) return true;
  std::int64_t stride = 1;
  for (std::size_t i = dimensions_; i-- > loose; stride *= shape_[i]) {
    if (shape_[i] != 1 && strides_[i] != stride) return false;
  }
  return true;
}

void TensorView::check(std::string_view name, ElementType type, Shape expected, std::size_t loose) const {
  using enum dlpack::DeviceType;
  if (device_.type != cpu && device_.type != cuda_host)
    refuse(name, "a tensor on the CPU", "one on " + name_of(device_));
  if (type_ != type) throw_wrong_type(name, name_of(type), type_);
  if (!has(expected)) {
    refuse(name, "shape " + in_brackets(expected, [](const Size& size) { return size.text(); }), in_brackets(shape()));
  }
  if (!is_contiguous(loose)) {
    refuse(name, "contiguous memory", "strides " + in_brackets(strides()) + " for shape " + in_brackets(shape()));
  }
}

void throw_wrong_type(std::string_view name, std::string_view expected, ElementType type) {
  throw pybind11::type_error(std::string(name) + ": expected " + std::string(expected) + ", got " + name_of(type));
}

}  // namespace unified
