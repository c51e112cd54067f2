// What runs the passes: a GPU, or this machine's cores where its results are compared.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "pixels/points/passes.h"

namespace flashcodec {

// Runs what it is told in that order.
class PointDevice {
 public:
  PointDevice() = default;
  virtual ~PointDevice() = default;
  PointDevice(const PointDevice&) = delete;
  PointDevice& operator=(const PointDevice&) = delete;

  // Copy a table to where passes read it; it stays there as long as somebody holds it.
  virtual std::shared_ptr<const std::byte> upload(std::span<const std::byte> table) = 0;
  // Return memory for what one pass leaves to the next; what was there before is lost.
  virtual uint8_t* scratch(size_t bytes) = 0;
  // Compute all rows and columns of a pass.
  virtual void run(const AcrossPass& pass) = 0;
  virtual void run(const DownPass& pass) = 0;
};

}  // namespace flashcodec
