// How a decoded picture is to be turned for display.
#pragma once

#include "pixels/device_function.h"

namespace flashcodec {

// First mirrored left to right, then turned clockwise by `quarter_turns` (0 to 3).
struct Orientation {
  int quarter_turns = 0;
  bool mirrored = false;

  DEVICE_FN bool swaps_sides() const { return quarter_turns % 2 != 0; }
};

}  // namespace flashcodec
