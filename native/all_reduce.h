#pragma once

#include <span>

namespace native {

// Sums over processes that compute parts of the same: what one core asks of another.
class AllReduce {
 public:
  AllReduce() = default;
  AllReduce(const AllReduce&) = delete;
  AllReduce& operator=(const AllReduce&) = delete;
  virtual ~AllReduce() = default;

  // Whether what is common to all processes is this one's to add.
  virtual bool leads() const = 0;
  // Replaces the values by their sums over all processes, which all call it. Throws if one does not come in time.
  virtual void sum(std::span<float> values) = 0;
};

}  // namespace native
