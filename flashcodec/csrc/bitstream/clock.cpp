#include "bitstream/clock.h"

#include <algorithm>

extern "C" {
#include <libavutil/common.h>
}

namespace flashcodec {

namespace {

constexpr int64_t kNone = AV_NOPTS_VALUE;

// Puts the packets on one clock, one after the other in decoding order.
class Unroller {
 public:
  Unroller(std::span<const Packet> packets, const TimeKeeping& keeping) : packets_(packets), keeping_(keeping) {}

  Clock unroll() {
    for (size_t i = 0; i < packets_.size(); ++i) add(static_cast<int32_t>(i));
    return std::move(clock_);
  }

  const std::vector<int64_t>& decoding_times() const { return decoding_; }

 private:
  void add(int32_t i) {
    const Packet& packet = packets_[i];
    int64_t pts = packet.pts != kNone ? packet.pts : packet.dts;
    if (pts == kNone) pts = next_;
    if (keeping_.may_be_set_back) notice(i, pts);
    pts = av_sat_add64(pts, offset_);
    if (packet.is_frame()) {
      end_ = std::max(end_, av_sat_add64(pts, length_of(packet)));
      next_ = av_sat_sub64(av_sat_add64(pts, 1), offset_);
    }
    if (packet.dts != kNone) decoded_until_ = av_sat_add64(av_sat_add64(packet.dts, offset_), length_of(packet));
    decoding_.push_back(packet.dts == kNone ? kNone : av_sat_add64(packet.dts, offset_));
    clock_.times.push_back(pts);
    clock_.known.push_back(packet.pts != kNone);
  }

  static int64_t length_of(const Packet& packet) { return std::max<int64_t>(packet.duration, 1); }

  void notice(int32_t i, int64_t pts) {
    const Packet& packet = packets_[i];
    const int64_t now = av_sat_add64(pts, offset_);
    const int64_t early = end_ == INT64_MIN ? 0 : av_sat_sub64(end_, now);
    if (packet.is_frame() && packet.key && early > av_sat_add64(keeping_.tolerance, length_of(packet))) {
      offset_ = av_sat_add64(offset_, early);
      if (has_leading(i)) clock_.set_back.push_back(i);
      return;
    }
    if (packet.dts == kNone || decoded_until_ == INT64_MIN) return;
    const int64_t back = av_sat_sub64(decoded_until_, av_sat_add64(packet.dts, offset_));
    if (back <= av_sat_add64(keeping_.tolerance, length_of(packet))) return;
    offset_ = av_sat_add64(offset_, back);
    clock_.set_back.push_back(i);
  }

  bool has_leading(int32_t key) const {
    const size_t next = static_cast<size_t>(key) + 1;
    return next < packets_.size() && packets_[next].pts != kNone && packets_[next].pts < packets_[key].pts;
  }

  std::span<const Packet> packets_;
  TimeKeeping keeping_;
  Clock clock_;
  std::vector<int64_t> decoding_;
  int64_t offset_ = 0;
  int64_t end_ = INT64_MIN;
  int64_t decoded_until_ = INT64_MIN;
  int64_t next_ = 0;  // for what has no timestamp at all
};

// Packets of pictures without a time, and when the next picture that is no B picture is decoded.
void infer(std::span<const Packet> packets, const std::vector<int64_t>& decoding, Clock& clock) {
  std::vector<int64_t> times = clock.times;
  int64_t next = av_sat_add64(decoding.back(), std::max<int64_t>(packets.back().duration, 1));
  for (size_t i = packets.size(); i-- > 0;) {
    if (!clock.known[i]) times[i] = next;
    if (packets[i].pts != packets[i].dts) next = decoding[i];
  }
  std::vector<int64_t> given;
  for (size_t i = 0; i < packets.size(); ++i) {
    if (clock.known[i]) given.push_back(times[i]);
  }
  std::ranges::sort(given);
  int64_t before = INT64_MIN;
  for (size_t i = 0; i < packets.size(); ++i) {
    if (clock.known[i]) continue;
    if (times[i] <= before || std::ranges::binary_search(given, times[i])) return;
    before = times[i];
  }
  clock.times = std::move(times);
  clock.known.assign(packets.size(), true);
}

}  // namespace

Clock read_clock(std::span<const Packet> packets, const TimeKeeping& keeping) {
  Unroller unroller(packets, keeping);
  Clock clock = unroller.unroll();
  const bool complete = std::ranges::find(clock.known, false) == clock.known.end();
  const bool decoded_at = std::ranges::find(unroller.decoding_times(), kNone) == unroller.decoding_times().end();
  if (!complete && decoded_at && keeping.b_pictures_timed) infer(packets, unroller.decoding_times(), clock);
  return clock;
}

}  // namespace flashcodec
