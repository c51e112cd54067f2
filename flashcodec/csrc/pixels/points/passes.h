// A picture's way to its place in two passes, each a function of single pixels: nothing depends on the order in which
// they are computed, so a GPU has a thread for each.
#pragma once

#include "pixels/canvas_shape.h"
#include "pixels/orientation.h"
#include "pixels/points/yuv_point.h"

namespace flashcodec {

// A section of height x width: the picture turned upright, `top` rows down and `left` columns across; else `color`.
struct UprightView {
  Surface surface;
  YuvWay way;
  YuvCoefficients coefficients;
  Orientation orientation;
  Rgb color;
  int width;
  int height;
  int top;
  int left;

  DEVICE_FN Rgb at(int y, int x) const {
    const int inner_width = orientation.swaps_sides() ? surface.height : surface.width;
    const int inner_height = orientation.swaps_sides() ? surface.width : surface.height;
    x -= left;
    y -= top;
    if (x < 0 || x >= inner_width || y < 0 || y >= inner_height) return color;
    const int turns = orientation.quarter_turns;
    if (orientation.swaps_sides()) {
      const int column = orientation.mirrored == (turns == 1) ? surface.width - 1 - y : y;
      return rgb_of(surface, way, coefficients, turns == 1 ? surface.height - 1 - x : x, column);
    }
    const int column = orientation.mirrored == (turns == 2) ? x : surface.width - 1 - x;
    return rgb_of(surface, way, coefficients, turns == 2 ? surface.height - 1 - y : y, column);
  }
};

// Rows of one byte a pixel and channel, [channel, row, x].
struct Rows {
  uint8_t* data;
  int rows;
  int width;

  DEVICE_FN uint8_t* at(int channel, int row, int x) const {
    return data + (size_t{1} * channel * rows + row) * width + x;
  }
};

struct ColorSums {
  int red;
  int green;
  int blue;

  DEVICE_FN void add(Rgb pixel, int weight) {
    red += pixel.red * weight;
    green += pixel.green * weight;
    blue += pixel.blue * weight;
  }
  DEVICE_FN Rgb shifted(int shift) const {
    return {clipped(red >> shift), clipped(green >> shift), clipped(blue >> shift)};
  }
};

DEVICE_FN inline ColorSums half_of(int shift) { return {1 << (shift - 1), 1 << (shift - 1), 1 << (shift - 1)}; }

// How many inputs output `i` is made of.
DEVICE_FN inline int taps_of(const FilterView& filter, int i) {
  const int left = filter.in - filter.first[i];
  return left < filter.taps ? left : filter.taps;
}

// First: the picture's rows from `first_row` on, converted and resized across; of the resized row those pixels that
// begin with `left`.
struct AcrossPass {
  UprightView picture;
  FilterView filter;  // where in and out are the same, pixels stay as they are
  int first_row;
  int left;
  Rows out;

  DEVICE_FN void operator()(int row, int x) const {
    const Rgb pixel = resized(first_row + row, left + x);
    *out.at(0, row, x) = pixel.red;
    *out.at(1, row, x) = pixel.green;
    *out.at(2, row, x) = pixel.blue;
  }

  DEVICE_FN Rgb resized(int y, int x) const {
    if (filter.in == filter.out) return picture.at(y, x);
    const int first = filter.first[x];
    const int16_t* weights = filter.weights + int64_t{x} * filter.stride;
    ColorSums sums = half_of(filter.shift);
    for (int j = 0; j < taps_of(filter, x); ++j) sums.add(picture.at(y, first + j), weights[j]);
    return sums.shifted(filter.shift);
  }
};

// Then: those rows resized down, and put where they belong; `color` where the frame does not cover the canvas. Row
// `covered_top` of the canvas is row `top` of the resized frame.
struct DownPass {
  Rows in;
  FilterView filter;
  int first_row;  // of `in`
  int top;
  int covered_top;
  int covered_bottom;
  int covered_left;
  int covered_right;
  Rgb color;
  CanvasShape canvas;
  int slot;
  uint8_t* group;

  DEVICE_FN void operator()(int y, int x) const {
    const bool covered = y >= covered_top && y < covered_bottom && x >= covered_left && x < covered_right;
    const Rgb pixel = covered ? resized(y - covered_top + top, x - covered_left) : color;
    const PixelPlace place = canvas.place(y, x, slot);
    group[place.red] = pixel.red;
    group[place.red + place.channel] = pixel.green;
    group[place.red + 2 * place.channel] = pixel.blue;
  }

  DEVICE_FN Rgb at(int row, int x) const { return {*in.at(0, row, x), *in.at(1, row, x), *in.at(2, row, x)}; }

  DEVICE_FN Rgb resized(int y, int x) const {
    if (filter.in == filter.out) return at(y - first_row, x);
    const int first = filter.first[y] - first_row;
    const int16_t* weights = filter.weights + int64_t{y} * filter.stride;
    ColorSums sums = half_of(filter.shift);
    for (int j = 0; j < taps_of(filter, y); ++j) sums.add(at(first + j, x), weights[j]);
    return sums.shifted(filter.shift);
  }
};

}  // namespace flashcodec
