// Packets that are decoded in one go.
#pragma once

#include <cstdint>

namespace flashcodec {

// Packets [first, last) that one decoder is fed without a break; `first` is a key packet.
struct Run {
  int32_t first;
  int32_t last;
};

}  // namespace flashcodec
