// What the tables of an MP4 file claim to hold.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>

namespace flashcodec {

// A table or fragment run whose samples are all alike is a few bytes that may claim billions of them, and FFmpeg sets
// up an index entry for each before anyone can stop it: gigabytes. So the bytes are looked at on their way to the
// demuxer.
class SampleClaims {
 public:
  // Looks at bytes that are read at `offset`, and returns how many samples such tables have claimed by now.
  int64_t look_at(int64_t offset, std::span<const uint8_t> bytes);

 private:
  using Bytes = std::span<const uint8_t>;
  // The longest part of a box that is looked at, from its type on. Any may be cut by the end of a read.
  static constexpr size_t kLongest = 20;

  void find_boxes(int64_t offset, Bytes bytes);
  void look_at_box(Bytes box);

  int64_t claimed_ = 0;
  // FFmpeg keeps PCM sound, whose samples last one tick each, by chunks.
  bool sound_ = false;
  bool single_ticks_ = false;
  int64_t exempt_ = 0;  // samples of this track that were not counted for that

  std::set<int64_t> seen_;  // offsets of boxes: bytes are read more than once
  std::array<uint8_t, 2 * (kLongest - 1)> seam_{};
  size_t kept_ = 0;   // bytes at the begin of seam_, from the end of the last read
  int64_t end_ = -1;  // where that read ended
};

}  // namespace flashcodec
