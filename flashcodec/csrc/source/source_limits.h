// What a source may ask of us. The defaults let every ordinary video pass.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>

namespace flashcodec {

struct Limits {
  int64_t max_pixels = int64_t{8192} * 8192;
  int32_t max_packets = 1 << 22;  // 19 hours at 60 frames a second; a few bytes can claim billions
  int64_t max_source_bytes = std::numeric_limits<int64_t>::max();
  double max_analysis_seconds = 60;
  double max_decode_seconds = std::numeric_limits<double>::infinity();  // of a request, from its first segment on
};

inline std::string analysis_too_long(const Limits& limits) {
  std::ostringstream reason;
  reason << "the analysis takes longer than " << limits.max_analysis_seconds << " s (max_analysis_seconds)";
  return reason.str();
}

// A point in time, or never.
class Deadline {
 public:
  Deadline() = default;
  explicit Deadline(double seconds) {
    constexpr double kForever = 1e9;
    if (!(seconds < kForever)) return;
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  bool passed() const { return end_ != Clock::time_point::max() && Clock::now() >= end_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_ = Clock::time_point::max();
};

}  // namespace flashcodec
