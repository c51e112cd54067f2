// What an exporter needs of DLPack's binary interface (https://dmlc.github.io/dlpack, version 1.0).
#pragma once

#include <cstdint>

namespace ipc::dlpack {

enum class DeviceType : std::int32_t { cpu = 1, cuda = 2 };

struct Device {
  DeviceType type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

inline constexpr DataType kUint8{1, 8, 1};

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements
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

  std::uint32_t major = 1;
  std::uint32_t minor = 0;
  void* owner;
  void (*deleter)(Versioned*);
  std::uint64_t flags = 0;  // none: to be written to, not a copy
  Tensor tensor;
};

}  // namespace ipc::dlpack
