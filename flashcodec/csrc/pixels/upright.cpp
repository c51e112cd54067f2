#include "pixels/upright.h"

#include <algorithm>
#include <cstring>

namespace flashcodec {

namespace {

constexpr int kTile = 16;          // side of what is transposed at a time
constexpr int kStripColumns = 64;  // columns made at a time

int rounded_up(int value, int step) { return (value + step - 1) / step * step; }

}  // namespace

void fill(Planes out, int count, Color color) {
  std::memset(out.red, color[0], count);
  std::memset(out.green, color[1], count);
  std::memset(out.blue, color[2], count);
}

void Upright::start(PixelSource& source, Orientation orientation, const Fit& fit) {
  source_ = &source;
  orientation_ = orientation;
  color_ = fit.color;
  strip_first_ = -1;
  inner_width_ = orientation.swaps_sides() ? source.height() : source.width();
  inner_height_ = orientation.swaps_sides() ? source.width() : source.height();
  section_ = section_of(fit, inner_height_, inner_width_);
}

void Upright::read(int y, int x, int count, Planes out) {
  const int row = y - section_.top;
  const int column = x - section_.left;
  const int begin = std::max(column, 0);
  const int end = row >= 0 && row < inner_height_ ? std::min(column + count, inner_width_) : begin;
  if (end - begin < count) fill(out, count, color_);
  if (begin < end) read_turned(row, begin, end - begin, out + (begin - column));
}

void Upright::read_turned(int y, int x, int count, Planes out) {
  if (orientation_.swaps_sides()) {
    const int column = orientation_.mirrored == (orientation_.quarter_turns == 1) ? source_->width() - 1 - y : y;
    if (strip_first_ < 0 || column / kStripColumns != strip_first_ / kStripColumns) load_strip(column);
    std::memcpy(out.red, strip_line(0, column) + x, count);
    std::memcpy(out.green, strip_line(1, column) + x, count);
    std::memcpy(out.blue, strip_line(2, column) + x, count);
    return;
  }
  const bool upside_down = orientation_.quarter_turns == 2;
  const int row = upside_down ? inner_height_ - 1 - y : y;
  if (upside_down == orientation_.mirrored) {
    source_->read(row, x, count, out);
    return;
  }
  source_->read(row, inner_width_ - x - count, count, out);
  for (uint8_t* plane : {out.red, out.green, out.blue}) kernels_.reverse(plane, count);
}

const uint8_t* Upright::strip_line(int channel, int column) const {
  const size_t line = static_cast<size_t>(channel) * kStripColumns + (column - strip_first_);
  return strip_.data() + line * rounded_up(source_->height(), kTile);
}

void Upright::load_strip(int column) {
  const int rows = source_->height();
  const int line = rounded_up(rows, kTile);
  strip_first_ = column / kStripColumns * kStripColumns;
  const int columns = std::min(kStripColumns, source_->width() - strip_first_);
  strip_.resize(std::max(strip_.size(), size_t{3} * kStripColumns * line));
  constexpr int kPlane = kTile * kStripColumns;
  block_.resize(std::max(block_.size(), size_t{3} * kPlane));
  for (int first = 0; first < rows; first += kTile) {
    for (int i = 0; i < std::min(kTile, rows - first); ++i) {
      const int row = orientation_.quarter_turns == 1 ? rows - 1 - (first + i) : first + i;
      uint8_t* out = block_.data() + ptrdiff_t{i} * kStripColumns;
      source_->read(row, strip_first_, columns, {out, out + kPlane, out + ptrdiff_t{2} * kPlane});
    }
    for (int channel = 0; channel < 3; ++channel) {
      const uint8_t* in = block_.data() + ptrdiff_t{channel} * kPlane;
      uint8_t* out = strip_.data() + static_cast<ptrdiff_t>(channel) * kStripColumns * line + first;
      for (int x = 0; x < kStripColumns; x += kTile) {
        kernels_.transpose(in + x, kStripColumns, out + static_cast<ptrdiff_t>(x) * line, line);
      }
    }
  }
}

}  // namespace flashcodec
