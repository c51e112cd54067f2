#include "pixels/filter.h"

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

double triangle(double x) { return std::max(1.0 - std::abs(x), 0.0); }

double box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

struct Curve {
  double (*value)(double);
  double support;
};

Curve curve_of(Interpolation interpolation) {
  switch (interpolation) {
    case Interpolation::kBilinear:
      return {triangle, 1.0};
    case Interpolation::kArea:
      return {box, 0.5};
    case Interpolation::kBicubic:
      break;
  }
  return {cubic, 2.0};
}

// The most bits of fraction with which the largest weight stays below 2^15.
int weight_bits(double largest) {
  int bits = 0;
  while (bits < 22 && static_cast<int>(0.5 + largest * (1 << (bits + 1))) < (1 << 15)) ++bits;
  return bits;
}

}  // namespace

Filter::Filter(Interpolation interpolation, int in, int out) : interpolation_(interpolation) {
  view_.in = in;
  view_.out = out;
  if (in == out) return;
  const Curve curve = curve_of(interpolation);
  const double scale = static_cast<double>(in) / out;
  const double stretch = std::max(scale, 1.0);
  const double support = curve.support * stretch;
  const int most = static_cast<int>(std::ceil(support)) * 2 + 1;
  first_.resize(out);
  std::vector<double> weights(static_cast<size_t>(out) * most);
  double largest = 0.0;
  for (int i = 0; i < out; ++i) {
    const double center = scale * (i + 0.5);
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int count = std::clamp(std::min(static_cast<int>(center + support + 0.5), in) - first, 0, most);
    double* row = weights.data() + static_cast<size_t>(i) * most;
    double total = 0.0;
    for (int j = 0; j < count; ++j) total += row[j] = curve.value((j + first - center + 0.5) * (1.0 / stretch));
    for (int j = 0; j < count; ++j) largest = std::max(largest, row[j] /= total);
    first_[i] = first;
    view_.taps = std::max(view_.taps, count);
  }
  view_.shift = weight_bits(largest);
  view_.stride = (view_.taps + 15) / 16 * 16;
  weights_.resize(static_cast<size_t>(out) * view_.stride);
  for (int i = 0; i < out; ++i) {
    for (int j = 0; j < view_.taps; ++j) {
      const double weight = weights[static_cast<size_t>(i) * most + j];
      weights_[static_cast<size_t>(i) * view_.stride + j] =
          static_cast<int16_t>(std::round(weight * (1 << view_.shift)));
    }
  }
}

FilterView Filter::view() const {
  FilterView view = view_;
  view.first = first_.data();
  view.weights = weights_.data();
  return view;
}

int Filter::last(int i) const { return identity() ? i + 1 : std::min(first_[i] + view_.taps, view_.in); }

}  // namespace flashcodec
