#include "plan/plan.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>

#include "bitstream/packet_reader.h"
#include "plan/cost_model.h"

namespace flashcodec {

namespace {

// A segment is at most this part of what is left for each engine.
constexpr int64_t kShare = 2;
// Not worth a segment of its own, microseconds.
constexpr int64_t kLeastSegment = 2000;
// What a new run costs beside its packets (decoder flush, seek), microseconds.
constexpr int64_t kRunCost = 2000;
// The longer a segment has become, the more may be decoded twice for ending it: this part of what it is too long.
constexpr int64_t kWasteShare = 4;
// So many runs tell how many packets of the others are skipped, too.
constexpr size_t kSampledRuns = 8;
// What frame threads cost more than one thread, percent.
constexpr int64_t kWidePercent = 113;

// When `engines` engines are done that take the segments in order, the last `wide` of them with frame threads.
int64_t time_to_finish(std::span<const Segment> segments, size_t wide, int engines) {
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> busy_until;
  for (int i = 0; i < engines; ++i) busy_until.push(0);
  int64_t last = 0;
  int64_t work = 0;
  for (const Segment& segment : segments.first(segments.size() - wide)) {
    const int64_t end = busy_until.top() + segment.cost;
    busy_until.pop();
    busy_until.push(end);
    last = std::max(last, end);
    work += segment.cost;
  }
  for (const Segment& segment : segments.last(wide)) work += segment.cost * kWidePercent / 100;
  return std::max(last, work / engines);
}

void choose_wide(std::vector<Segment>& segments, int engines) {
  size_t best = 0;
  const size_t most = std::min(segments.size(), static_cast<size_t>(engines));
  for (size_t wide = 1; wide <= most; ++wide) {
    if (time_to_finish(segments, wide, engines) < time_to_finish(segments, best, engines)) best = wide;
  }
  for (Segment& segment : std::span(segments).last(best)) segment.wide = true;
}

// FFmpeg's frame threads lose what interlaced B-VOPs need and what VP8 keeps from frame to frame, and conceal what is
// missing in another way than one thread.
bool exact_with_threads(const Bitstream& stream) {
  const CodedFormat& format = stream.format_of(0);
  const bool interlaced = format.codec == AV_CODEC_ID_MPEG4 && format.interlaced;
  return !interlaced && format.codec != AV_CODEC_ID_VP8 && stream.ordered();
}

}  // namespace

int first_gop_needed(const Bitstream& stream, int32_t packet) {
  int gop = stream.gop_of(packet);
  if (stream.leading(packet) && gop > 0) --gop;
  while (!stream.starts_clean(gop)) --gop;
  return gop;
}

std::vector<Run> find_runs(const Bitstream& stream, std::span<const int64_t> frames) {
  if (!stream.ordered()) return {{0, static_cast<int32_t>(stream.packets().size())}};
  std::vector<int32_t> packets;
  packets.reserve(frames.size());
  for (const int64_t frame : frames) packets.push_back(stream.frames()[static_cast<size_t>(frame)]);
  std::sort(packets.begin(), packets.end());
  std::vector<Run> runs;
  for (const int32_t packet : packets) {
    const int32_t start = stream.gops()[first_gop_needed(stream, packet)].first_packet;
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

PacketCount count_packets(const Bitstream& stream, std::span<const Run> runs, std::span<const int64_t> frames) {
  const std::set<int64_t> wanted(frames.begin(), frames.end());
  const CostModel model(stream);
  PacketReader reader(stream.table());
  auto packet = owned<PacketPtr>(av_packet_alloc());
  PacketCount count;
  int64_t nanoseconds = 0;
  for (const Run& run : runs) {
    CodedFormat format = stream.format_of(run.first);
    for (int32_t i = run.first; i < run.last; ++i) {
      reader.read(i, packet.get());
      if (i > run.first && stream.packets()[i].state != stream.packets()[i - 1].state) format = stream.format_of(i);
      const bool unused = disposable(bytes_of(*packet), format);
      const bool skippable = unused && stream.ordered() && !wanted.contains(stream.packets()[i].frame);
      const bool needed = !skippable && !undecodable(stream, run, i);
      ++(needed ? count.needed : count.skipped);
      if (needed) nanoseconds += model.nanoseconds(i);
    }
  }
  count.cost = nanoseconds / 1000;
  return count;
}

PacketCount estimate_packets(const Bitstream& stream, std::span<const Run> runs, std::span<const int64_t> frames) {
  const CostModel model(stream);
  PacketCount total;
  for (const Run& run : runs) total.needed += run.last - run.first;
  total.cost = model.of(runs);
  PacketCount sample;
  int64_t sample_cost = 0;
  const size_t step = (runs.size() + kSampledRuns - 1) / kSampledRuns;
  for (size_t i = 0; i < runs.size(); i += step) {
    try {
      const PacketCount count = count_packets(stream, runs.subspan(i, 1), frames);
      sample.needed += count.needed;
      sample.skipped += count.skipped;
      sample.cost += count.cost;
      sample_cost += model.of(runs.subspan(i, 1));
    } catch (const DecodeError&) {  // whoever decodes it will say so
    }
  }
  if (sample.needed == 0) return total;
  const int64_t packets = total.needed;
  total.needed = packets * sample.needed / (sample.needed + sample.skipped);
  total.skipped = packets - total.needed;
  total.cost = total.cost * sample.cost / std::max<int64_t>(1, sample_cost);
  return total;
}

std::vector<Segment> make_segments(const Bitstream& stream, std::span<const int64_t> frames, int group_frames,
                                   int engines) {
  const auto count = static_cast<int32_t>(frames.size());
  const CostModel model(stream);
  const auto runs_of = [&](int32_t first, int32_t last) {
    return find_runs(stream, frames.subspan(first, last - first));
  };
  const auto cost_of = [&](const std::vector<Run>& runs) {
    return model.of(runs) + kRunCost * static_cast<int64_t>(runs.size());
  };
  std::vector<Segment> segments;
  const auto cut = [&](int32_t first, int32_t last, int64_t cost) {
    segments.push_back({first, last, runs_of(first, last), cost});
  };
  int64_t left = cost_of(runs_of(0, count));
  int32_t first = 0;
  int64_t cost = 0;
  for (int32_t group = 0; stream.ordered() && group < count; group += group_frames) {
    const int32_t next = std::min(group + group_frames, count);
    const int64_t alone = cost_of(runs_of(group, next));
    const int32_t before = std::max(group - group_frames, first);
    const int64_t after = group == first ? alone : cost_of(runs_of(before, next)) - cost_of(runs_of(before, group));
    const int64_t excess = cost + after - std::max(kLeastSegment, left / (kShare * engines));
    if (group > first && excess > 0 && alone - after <= kRunCost + excess / kWasteShare) {
      cut(first, group, cost);
      left -= cost;
      first = group;
      cost = alone;
    } else {
      cost += after;
    }
  }
  cut(first, count, stream.ordered() ? cost : left);
  if (exact_with_threads(stream)) choose_wide(segments, engines);
  return segments;
}

}  // namespace flashcodec
