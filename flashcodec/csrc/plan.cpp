#include "plan.h"

#include <algorithm>
#include <set>

#include "packet_reader.h"

namespace flashcodec {

namespace {

// Segments for each engine: more even out the load and give the first frames sooner, each costs a seek.
constexpr int kSegmentsPerEngine = 4;
// What a new run costs beside its packets (decoder flush, seek), in packets.
constexpr int64_t kRunCost = 2;
// The longer a segment has become, the more may be decoded twice for ending it: this part of what it is too long.
constexpr int64_t kWasteShare = 4;

int first_gop(const Bitstream& stream, int32_t packet) {
  int gop = stream.gop_of(packet);
  if (stream.leading(packet) && gop > 0) --gop;
  while (!stream.starts_clean(gop)) --gop;
  return gop;
}

}  // namespace

std::vector<Run> find_runs(const Bitstream& stream, std::span<const int64_t> frames) {
  std::vector<int32_t> packets;
  packets.reserve(frames.size());
  for (const int64_t frame : frames) packets.push_back(stream.frames()[static_cast<size_t>(frame)]);
  std::sort(packets.begin(), packets.end());
  if (!stream.ordered()) return {{0, static_cast<int32_t>(stream.packets().size())}};
  std::vector<Run> runs;
  for (const int32_t packet : packets) {
    const int32_t start = stream.gops()[first_gop(stream, packet)].first_packet;
    if (runs.empty() || start >= runs.back().last) {
      runs.push_back({start, packet + 1});
      continue;
    }
    runs.back().last = packet + 1;
    // A leading picture moves the start of its run back, perhaps into the run before.
    runs.back().first = std::min(runs.back().first, start);
    while (runs.size() > 1 && runs[runs.size() - 2].last > runs.back().first) {
      runs[runs.size() - 2].last = runs.back().last;
      runs.pop_back();
    }
  }
  return runs;
}

bool undecodable(const Bitstream& stream, const Run& run, int32_t packet) {
  return run.first > 0 && stream.gops()[stream.gop_of(packet)].first_packet == run.first && stream.leading(packet);
}

int64_t cost_of(std::span<const Run> runs) {
  int64_t cost = 0;
  for (const Run& run : runs) cost += run.last - run.first + kRunCost;
  return cost;
}

PacketCount count_packets(const Bitstream& stream, std::span<const Run> runs, std::span<const int64_t> frames) {
  const std::set<int64_t> wanted(frames.begin(), frames.end());
  PacketReader reader(stream);
  auto packet = owned<PacketPtr>(av_packet_alloc());
  PacketCount count;
  for (const Run& run : runs) {
    for (int32_t i = run.first; i < run.last; ++i) {
      reader.read(i, packet.get());
      const bool skippable = stream.ordered() && !wanted.contains(stream.packets()[i].frame) &&
                             disposable({packet->data, static_cast<size_t>(packet->size)}, stream.nal_format());
      ++(skippable || undecodable(stream, run, i) ? count.skipped : count.needed);
    }
  }
  return count;
}

std::vector<Segment> make_segments(const Bitstream& stream, std::span<const int64_t> frames, int group_frames,
                                   int engines) {
  const auto count = static_cast<int32_t>(frames.size());
  const auto runs_of = [&](int32_t first, int32_t last) {
    return find_runs(stream, frames.subspan(first, last - first));
  };
  if (!stream.ordered()) {
    const std::vector<Run> all = runs_of(0, count);
    return {{0, count, all, cost_of(all)}};
  }
  const int64_t share = std::max<int64_t>(1, cost_of(runs_of(0, count)) / (int64_t{engines} * kSegmentsPerEngine));
  std::vector<Segment> segments;
  int32_t first = 0;
  int64_t cost = 0;
  for (int32_t group = 0; group < count; group += group_frames) {
    const int32_t next = std::min(group + group_frames, count);
    const int64_t alone = cost_of(runs_of(group, next));
    const int32_t before = std::max(group - group_frames, first);
    const int64_t after = group == first ? alone : cost_of(runs_of(before, next)) - cost_of(runs_of(before, group));
    const int64_t excess = cost + after - share;
    if (group > first && excess > 0 && alone - after <= kRunCost + excess / kWasteShare) {
      segments.push_back({first, group, runs_of(first, group), cost});
      first = group;
      cost = alone;
    } else {
      cost += after;
    }
  }
  segments.push_back({first, count, runs_of(first, count), cost});
  return segments;
}

}  // namespace flashcodec
