#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "bfloat16.h"
#include "float16.h"
#include "native/dlpack.h"

namespace unified {

// The type of a tensor's elements.
using ElementType = native::dlpack::DataType;

template <class T>
inline constexpr ElementType kElementType = kElementType<std::remove_const_t<T>>;
template <>
inline constexpr ElementType kElementType<std::int32_t>{0, 32, 1};
template <>
inline constexpr ElementType kElementType<std::int64_t>{0, 64, 1};
template <>
inline constexpr ElementType kElementType<std::int8_t>{0, 8, 1};
template <>
inline constexpr ElementType kElementType<std::uint8_t>{1, 8, 1};
template <>
inline constexpr ElementType kElementType<float>{2, 32, 1};
template <>
inline constexpr ElementType kElementType<Float16>{2, 16, 1};
template <>
inline constexpr ElementType kElementType<BFloat16>{4, 16, 1};

// As torch names it: "float32".
std::string name_of(ElementType type);

}  // namespace unified
