// The weights of an antialiased resize along one axis.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pixels/kernels.h"

namespace flashcodec {

// kBicubic and kBilinear are those of torch.nn.functional.interpolate(uint8, antialias=True) on CPU, weight for weight;
// it follows Pillow's ImagingResample with weights of 16 bits. kArea is the mean of the pixels whose centres an output
// pixel covers, as Pillow's BOX.
enum class Interpolation { kBicubic, kBilinear, kArea };

class Filter {
 public:
  Filter() = default;
  Filter(Interpolation interpolation, int in, int out);

  bool made_for(Interpolation interpolation, int in, int out) const {
    return interpolation_ == interpolation && view_.in == in && view_.out == out;
  }
  FilterView view() const;
  // What the view points to; empty if it leaves every pixel as it is.
  std::span<const int32_t> starts() const { return first_; }
  std::span<const int16_t> all_weights() const { return weights_; }
  // Whether it leaves every pixel as it is.
  bool identity() const { return view_.in == view_.out; }
  int taps() const { return view_.taps; }
  int stride() const { return view_.stride; }
  int shift() const { return view_.shift; }
  // Output i is made of the inputs [first(i), last(i)).
  int first(int i) const { return identity() ? i : first_[i]; }
  int last(int i) const;
  const int16_t* weights(int i) const { return weights_.data() + static_cast<size_t>(i) * view_.stride; }

 private:
  Interpolation interpolation_ = Interpolation::kBicubic;
  FilterView view_{};
  std::vector<int32_t> first_;
  std::vector<int16_t> weights_;  // [out, stride]
};

}  // namespace flashcodec
