// Outputs in a GPU's memory, for Python's array libraries.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "native/dlpack_export.h"

namespace flashcodec {

// uint8 [shape], contiguous, all of it written.
class GpuArray {
 public:
  GpuArray(std::shared_ptr<uint8_t[]> data, int gpu, std::vector<int64_t> shape)
      : data_(std::move(data)), gpu_(gpu), shape_(std::move(shape)) {}

  const std::vector<int64_t>& shape() const { return shape_; }

  native::dlpack::DeviceTuple device() const { return bytes().device_tuple(); }

  pybind11::capsule dlpack(const pybind11::object& /*stream*/,
                           std::optional<std::pair<std::uint32_t, std::uint32_t>> max_version,
                           std::optional<native::dlpack::DeviceTuple> device, std::optional<bool> copy) const {
    return native::dlpack::export_bytes("an array on cuda:" + std::to_string(gpu_), bytes(),
                                        {max_version, device, copy});
  }

 private:
  native::dlpack::Bytes bytes() const {
    const std::shared_ptr<void> owner(data_, data_.get());
    return {owner, data_.get(), {native::dlpack::DeviceType::cuda, gpu_}, shape_};
  }

  std::shared_ptr<uint8_t[]> data_;
  int gpu_;
  std::vector<int64_t> shape_;
};

}  // namespace flashcodec
