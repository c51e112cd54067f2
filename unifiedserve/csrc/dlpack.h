// The parts of DLPack's binary interface (version 1.x, https://dmlc.github.io/dlpack) that tensor arguments need.
#pragma once

#include <cstdint>

#include "element_type.h"

namespace unified::dlpack {

enum class DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };

struct Device {
  DeviceType type;
  std::int32_t id;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  ElementType type;
  const std::int64_t* shape;
  const std::int64_t* strides;  // in elements; null: contiguous
  std::uint64_t byte_offset;
};

// What `__dlpack_c_exchange_api__` of a tensor's class holds, a capsule of this name.
inline constexpr char kExchangeCapsule[] = "dlpack_exchange_api";
inline constexpr std::uint32_t kMajorVersion = 1;

struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  const ExchangeApi* older;
  void* allocate;
  void* export_owning;
  void* import_owning;
  // Describes a Python object without owning it; 0, or -1 with a Python exception set. May be null.
  int (*describe)(void* object, Tensor* out);
  void* current_stream;
};

}  // namespace unified::dlpack
