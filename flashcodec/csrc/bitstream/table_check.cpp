#include "bitstream/table_check.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

extern "C" {
#include <libavutil/common.h>
}

#include "bitstream/packet_reader.h"
#include "bitstream/picture_order.h"
#include "codecs/coded_format.h"
#include "codecs/h264_sps.h"

namespace flashcodec {

namespace {

// Pictures that are looked at in a row: B pictures come soon where there are any.
constexpr int32_t kLooks = 8;
// So few packets are all looked at.
constexpr int32_t kFew = 64;
// Places where the clock does not go on evenly that are looked at.
constexpr size_t kMostSteps = 8;

// Where frames that are not shown have samples of their own, which MP4 forbids, their times are next to those of
// others.
bool may_hide_frames(AVCodecID codec, std::span<const Packet> packets) {
  constexpr int64_t kMuchShorter = 8;  // than the average
  constexpr std::array codecs{AV_CODEC_ID_VP8, AV_CODEC_ID_VP9, AV_CODEC_ID_AV1};
  if (std::ranges::find(codecs, codec) == codecs.end() || packets.size() < 2) return false;
  const auto steps = static_cast<int64_t>(packets.size() - 1);
  const int64_t average = av_sat_sub64(packets.back().dts, packets.front().dts) / steps;
  return std::ranges::adjacent_find(packets, [&](const Packet& a, const Packet& b) {
           return av_sat_sub64(b.dts, a.dts) < average / kMuchShorter;
         }) != packets.end();
}

bool reorders(const AVCodecParameters& parameters) {
  if (never_reorders(parameters.codec_id)) return false;
  if (parameters.codec_id != AV_CODEC_ID_H264) return parameters.video_delay > 0;
  const auto sps = first_h264_sps(configuration_of(parameters));
  return !sps || !sps->never_reorders();
}

// Each frame has a time of its own, and not only the time at which it is decoded where that says nothing.
bool times_tell(std::span<const Packet> packets, const AVCodecParameters& parameters) {
  if (never_reorders(parameters.codec_id)) return true;
  if (!reorders(parameters)) return std::ranges::is_sorted(packets, {}, &Packet::pts);
  const auto as_decoded = [](const Packet& packet) { return packet.pts == packet.dts; };
  if (std::ranges::all_of(packets, as_decoded)) return false;
  std::vector<int64_t> times;
  times.reserve(packets.size());
  for (const Packet& packet : packets) times.push_back(packet.pts);
  std::ranges::sort(times);
  return std::ranges::adjacent_find(times) == times.end();
}

class Looks {
 public:
  Looks(const PacketTable& table, const AVCodecParameters& parameters)
      : table_(table),
        parameters_(parameters),
        format_(CodedFormat::of(parameters)),
        reader_(table),
        packet_(owned<PacketPtr>(av_packet_alloc())) {}

  // The first, the middle and the last key packet behind the first packet. An all-intra stream has no others.
  bool key_flags_hold() {
    std::vector<int32_t> keys;
    for (int32_t i = 1; i < count(); ++i) {
      if (table_.packets[i].key) keys.push_back(i);
    }
    if (keys.empty()) return table_.packets[0].key;
    const std::array looks{keys.front(), keys[keys.size() / 2], keys.back()};
    return std::ranges::none_of(looks, [&](int32_t key) {
      const Start start = start_of(read(key), format_);
      return start == Start::kNo || start == Start::kUnknown;
    });
  }

  // Pictures come in the order of their times at the start, and where the clock does not go on evenly.
  bool times_hold() {
    if (!reorders(parameters_) || count() < 2) return true;
    if (count() <= kFew) return times_hold_at(0, kFew);
    std::vector<int32_t> steps(static_cast<size_t>(count()) - 1);
    std::iota(steps.begin(), steps.end(), 1);
    const auto step = [&](int32_t i) { return av_sat_sub64(table_.packets[i].dts, table_.packets[i - 1].dts); };
    const auto most = steps.begin() + static_cast<std::ptrdiff_t>(std::min(steps.size(), kMostSteps));
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::ranges::nth_element(steps, middle, std::greater<>(), step);
    const int64_t usual = step(*middle);
    std::ranges::partial_sort(steps, most, std::greater<>(), step);
    return times_hold_at(0) && std::all_of(steps.begin(), most, [&](int32_t i) {
             return step(i) <= av_sat_add64(usual, usual) || times_hold_at(std::max(0, i - kLooks / 2));
           });
  }

 private:
  bool times_hold_at(int32_t first, int32_t looks = kLooks) {
    PictureOrder order(parameters_);
    std::vector<std::pair<int64_t, int64_t>> times;
    for (int32_t i = first; i < std::min(count(), first + looks); ++i) {
      const std::optional<int64_t> place = order.place(read(i), format_);
      if (place) times.emplace_back(table_.packets[i].pts, *place);
    }
    std::ranges::sort(times);
    return std::ranges::is_sorted(times, {}, &std::pair<int64_t, int64_t>::second);
  }

  int32_t count() const { return static_cast<int32_t>(table_.packets.size()); }

  std::span<const uint8_t> read(int32_t number) {
    reader_.read(number, packet_.get());
    return bytes_of(*packet_);
  }

  const PacketTable& table_;
  const AVCodecParameters& parameters_;
  CodedFormat format_;
  PacketReader reader_;
  PacketPtr packet_;
};

}  // namespace

bool tables_hold(const PacketTable& table, const AVCodecParameters& parameters) {
  if (table.states.size() > 1) return false;
  if (may_hide_frames(parameters.codec_id, table.packets) || !times_tell(table.packets, parameters)) return false;
  try {
    Looks looks(table, parameters);
    return looks.key_flags_hold() && looks.times_hold();
  } catch (const DecodeError&) {
    return true;  // a packet that is not there is no reason to read all others
  }
}

}  // namespace flashcodec
