// Whether decoding may start at a packet.
#pragma once

#include <cstdint>

namespace flashcodec {

enum class Start : uint8_t {
  kUnknown,  // nothing that is read here tells
  kDamaged,  // it holds no picture
  kNo,       // its picture refers to others
  kGradual,  // a recovery point in the middle of an intra refresh
  kIntra,    // its picture refers to no other, but pictures after it may refer to those before
  kYes,
};

}  // namespace flashcodec
