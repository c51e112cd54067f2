#include "plan/engine_choice.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace flashcodec {

namespace {

using std::chrono::microseconds;

// Of the time without a further kind, what it may take with it.
constexpr double kWorthwhile = 0.8;

double count(microseconds time) { return static_cast<double>(time.count()); }

}  // namespace

// After t a kind has done (t - opening) / decoding of the video, and all of them the whole of it.
microseconds time_together(std::vector<Estimate> kinds) {
  std::ranges::sort(kinds, {}, &Estimate::opening);
  double rate = 0;
  double lost = 0;
  double done = std::numeric_limits<double>::infinity();
  for (const Estimate& kind : kinds) {
    if (done <= count(kind.opening)) break;  // the others are done before it begins
    const double own = 1 / std::max(1.0, count(kind.decoding));
    rate += own;
    lost += own * count(kind.opening);
    done = (1 + lost) / rate;
  }
  return microseconds(static_cast<int64_t>(done));
}

std::vector<size_t> choose_kinds(std::span<const Estimate> kinds) {
  std::vector<size_t> by_time(kinds.size());
  std::iota(by_time.begin(), by_time.end(), 0);
  std::ranges::sort(by_time, {}, [&](size_t i) { return std::pair(kinds[i].opening + kinds[i].decoding, i); });
  std::vector<size_t> chosen;
  std::vector<Estimate> team;
  for (const size_t next : by_time) {
    std::vector<Estimate> larger = team;
    larger.push_back(kinds[next]);
    if (!team.empty() && count(time_together(larger)) > kWorthwhile * count(time_together(team))) continue;
    chosen.push_back(next);
    team = std::move(larger);
  }
  return chosen;
}

}  // namespace flashcodec
