#include "pixels/points/host_points.h"

#include <algorithm>

namespace flashcodec {

namespace {

template <class Pass>
void for_each(int rows, int width, const Pass& pass) {
  for (int y = 0; y < rows; ++y) {
    for (int x = 0; x < width; ++x) pass(y, x);
  }
}

}  // namespace

std::shared_ptr<const std::byte> HostPoints::upload(std::span<const std::byte> table) {
  auto copy = std::make_shared<std::vector<std::byte>>(table.begin(), table.end());
  return {copy, copy->data()};
}

uint8_t* HostPoints::scratch(size_t bytes) {
  scratch_.resize(std::max(scratch_.size(), bytes));
  return scratch_.data();
}

void HostPoints::run(const AcrossPass& pass) { for_each(pass.out.rows, pass.out.width, pass); }

void HostPoints::run(const DownPass& pass) { for_each(pass.canvas.height, pass.canvas.width, pass); }

}  // namespace flashcodec
