#include "resize.h"

#include <algorithm>
#include <cmath>

namespace flashcodec {

namespace {

// Keys' cubic convolution with a = -0.5.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
  return 0.0;
}

// The most bits of fraction with which the largest weight stays below 2^15.
int weight_bits(double largest) {
  int bits = 0;
  while (bits < 22 && static_cast<int>(0.5 + largest * (1 << (bits + 1))) < (1 << 15)) ++bits;
  return bits;
}

uint8_t clip(int32_t value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

}  // namespace

Filter Filter::bicubic(int in, int out) {
  const double scale = static_cast<double>(in) / out;
  const double stretch = std::max(scale, 1.0);
  const double support = 2.0 * stretch;
  Filter filter;
  filter.in = in;
  filter.out = out;
  filter.taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  filter.first.resize(out);
  std::vector<double> weights(static_cast<size_t>(out) * filter.taps);
  double largest = 0.0;
  for (int i = 0; i < out; ++i) {
    const double center = scale * (i + 0.5);
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int count = std::clamp(std::min(static_cast<int>(center + support + 0.5), in) - first, 0, filter.taps);
    double* row = weights.data() + static_cast<size_t>(i) * filter.taps;
    double total = 0.0;
    for (int j = 0; j < count; ++j) total += row[j] = cubic((j + first - center + 0.5) * (1.0 / stretch));
    for (int j = 0; j < count; ++j) largest = std::max(largest, row[j] /= total);
    filter.first[i] = first;
  }
  filter.shift = weight_bits(largest);
  filter.weights.resize(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    filter.weights[i] = static_cast<int16_t>(std::round(weights[i] * (1 << filter.shift)));
  }
  return filter;
}

void Resizer::start(const RgbView& rgb, int width, int height) {
  rgb_ = rgb;
  if (across_.in != rgb.width || across_.out != width) across_ = Filter::bicubic(rgb.width, width);
  if (down_.in != rgb.height || down_.out != height) down_ = Filter::bicubic(rgb.height, height);
  const size_t bytes = size_t{3} * width;
  row_.resize(bytes);
  sums_.resize(bytes);
  if (width == rgb.width) return;
  narrowed_.resize(bytes * rgb.height);
  for (int y = 0; y < rgb.height; ++y) filter_row(rgb.data + rgb.stride * y, narrowed_.data() + bytes * y);
  rgb_ = {narrowed_.data(), bytes, width, rgb.height};
}

void Resizer::filter_row(const uint8_t* in, uint8_t* out) const {
  const int32_t half = 1 << (across_.shift - 1);
  const int16_t* weights = across_.weights.data();
  for (int x = 0; x < across_.out; ++x, weights += across_.taps, out += 3) {
    const uint8_t* pixel = in + size_t{3} * across_.first[x];
    const int taps = std::min(across_.taps, across_.in - across_.first[x]);
    int32_t red = half, green = half, blue = half;
    for (int j = 0; j < taps; ++j, pixel += 3) {
      red += weights[j] * pixel[0];
      green += weights[j] * pixel[1];
      blue += weights[j] * pixel[2];
    }
    out[0] = clip(red >> across_.shift);
    out[1] = clip(green >> across_.shift);
    out[2] = clip(blue >> across_.shift);
  }
}

std::span<const uint8_t> Resizer::row(int y) {
  if (down_.in == down_.out) return {rgb_.data + rgb_.stride * y, row_.size()};
  const int first = down_.first[y];
  const int taps = std::min(down_.taps, down_.in - first);
  const int16_t* weights = down_.weights.data() + static_cast<size_t>(y) * down_.taps;
  std::fill(sums_.begin(), sums_.end(), 1 << (down_.shift - 1));
  for (int j = 0; j < taps; ++j) {
    const uint8_t* in = rgb_.data + rgb_.stride * (first + j);
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += weights[j] * in[i];
  }
  for (size_t i = 0; i < row_.size(); ++i) row_[i] = clip(sums_[i] >> down_.shift);
  return row_;
}

}  // namespace flashcodec
