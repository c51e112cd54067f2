// What the cores need of DLPack's binary interface (version 1.x, https://dmlc.github.io/dlpack).
#pragma once

#include <cstdint>

namespace native::dlpack {

inline constexpr std::uint32_t kMajorVersion = 1;

enum class DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };

struct Device {
  DeviceType type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;

  bool operator==(const DataType&) const = default;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: contiguous
  std::uint64_t byte_offset;
};

// What a capsule of consumers before version 1 holds (DLManagedTensor).
struct Unversioned {
  static constexpr char kCapsule[] = "dltensor";

  Tensor tensor;
  void* owner;
  void (*deleter)(Unversioned*);
};

// What a capsule holds since then (DLManagedTensorVersioned).
struct Versioned {
  static constexpr char kCapsule[] = "dltensor_versioned";

  std::uint32_t major = kMajorVersion;
  std::uint32_t minor = 0;
  void* owner;
  void (*deleter)(Versioned*);
  std::uint64_t flags = 0;  // none: to be written to, not a copy
  Tensor tensor;
};

// What `__dlpack_c_exchange_api__` of a tensor's class holds in a capsule (DLPackExchangeAPI).
struct ExchangeApi {
  static constexpr char kCapsule[] = "dlpack_exchange_api";

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

}  // namespace native::dlpack
