// What decoding a packet costs, before it is decoded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bitstream/bitstream.h"
#include "plan/run.h"

namespace flashcodec {

// CPU time is about linear in the pixels of a picture (prediction, transform, filters) and the bytes of its packet
// (entropy coding). The coefficients were fitted to FFmpeg's decoders on one AVX-512 server core; a plan needs only
// their proportions.
class CostModel {
 public:
  explicit CostModel(const Bitstream& stream);

  int64_t nanoseconds(int32_t packet) const { return before_[packet + 1] - before_[packet]; }
  // Of all packets in the runs, microseconds.
  int64_t of(std::span<const Run> runs) const;

 private:
  std::vector<int64_t> before_;  // cost of the packets before each, nanoseconds
};

}  // namespace flashcodec
