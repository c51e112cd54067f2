// Which kinds of engines should work on a video.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

namespace flashcodec {

// How long the engines of a kind take over a video, if they alone decode it.
struct Estimate {
  std::chrono::microseconds opening{0};   // before the first picture, to make decoders
  std::chrono::microseconds decoding{0};  // by all of them together
};

// When kinds are done with a video that share it so that they end together.
std::chrono::microseconds time_together(std::vector<Estimate> kinds);

// The kind that is done first alone, and each further one that is worth its trouble: with it they are done sooner by a
// fifth at least. Indices, in no order; none only if there are no kinds.
std::vector<size_t> choose_kinds(std::span<const Estimate> kinds);

}  // namespace flashcodec
