#include "pixels/resize.h"

#include <algorithm>
#include <cstring>

namespace flashcodec {

void Resizer::start(PixelSource& source, int height, int width, Interpolation interpolation, const Window& window) {
  source_ = &source;
  window_ = window;
  if (!across_.made_for(interpolation, source.width(), width)) across_ = Filter(interpolation, source.width(), width);
  if (!down_.made_for(interpolation, source.height(), height)) down_ = Filter(interpolation, source.height(), height);
  first_column_ = across_.first(window.left);
  columns_ = across_.last(window.left + window.width - 1) - first_column_;
  if (!across_.identity()) {
    first_column_ = first_column_ / 2 * 2;
    const int last = std::min((across_.last(window.left + window.width - 1) + 1) / 2 * 2, source.width());
    columns_ = last - first_column_;
    wide_.resize(std::max(wide_.size(), size_t{3} * (columns_ + across_.stride())));
  }
  next_ = 0;
  if (down_.identity()) return;
  capacity_ = down_.taps();
  kept_stride_ = static_cast<size_t>(window.width) + kRowPadding;
  kept_.resize(std::max(kept_.size(), 3 * kept_stride_ * capacity_));
  rows_.resize(std::max(rows_.size(), static_cast<size_t>(capacity_) + 1));
}

void Resizer::row(int y, Planes out) {
  y += window_.top;
  if (down_.identity()) {
    read_narrowed(y, out);
    return;
  }
  for (next_ = std::max(next_, down_.first(y)); next_ < down_.last(y); ++next_) read_narrowed(next_, kept(next_));
  mix(y, out);
}

void Resizer::read_narrowed(int y, Planes out) {
  if (across_.identity()) {
    source_->read(y, first_column_, columns_, out);
    return;
  }
  const ptrdiff_t plane = columns_ + across_.stride();
  const Planes wide{wide_.data(), wide_.data() + plane, wide_.data() + 2 * plane};
  source_->read(y, first_column_, columns_, wide);
  kernels_.narrow(ConstPlanes(wide), first_column_, across_.view(), window_.left, window_.left + window_.width, out);
}

Planes Resizer::kept(int y) {
  uint8_t* row = kept_.data() + 3 * kept_stride_ * (y % capacity_);
  return {row, row + kept_stride_, row + 2 * kept_stride_};
}

void Resizer::mix(int y, Planes out) {
  const int first = down_.first(y);
  const int taps = down_.last(y) - first;
  const auto blend = [&](uint8_t* Planes::*plane) {
    for (int j = 0; j < taps; ++j) rows_[j] = kept(first + j).*plane;
    rows_[taps] = rows_[0];  // rows go in pairs; this one's weight is 0
    kernels_.blend(rows_.data(), down_.weights(y), taps, down_.shift(), window_.width, out.*plane);
  };
  blend(&Planes::red);
  blend(&Planes::green);
  blend(&Planes::blue);
}

}  // namespace flashcodec
