// The passes in plain loops: what a GPU's results are compared with.
#pragma once

#include <vector>

#include "pixels/points/point_device.h"

namespace flashcodec {

class HostPoints : public PointDevice {
 public:
  std::shared_ptr<const std::byte> upload(std::span<const std::byte> table) override;
  uint8_t* scratch(size_t bytes) override;
  void run(const AcrossPass& pass) override;
  void run(const DownPass& pass) override;

 private:
  std::vector<uint8_t> scratch_;
};

}  // namespace flashcodec
