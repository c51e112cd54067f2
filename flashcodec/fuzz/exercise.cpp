#include "exercise.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "serving/session.h"

namespace flashcodec::fuzz {

namespace {

// Enough for 1080p; a few decoders of such pictures fit into the memory that a run may take.
constexpr int64_t kMaxPixels = int64_t{1920} * 1200;
constexpr int kEngines = 2;
constexpr int64_t kDecoderBytes = int64_t{512} << 20;
// A few large frames fill it, so that jobs pause.
constexpr size_t kOutputBytes = size_t{16} << 20;

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "check failed: %s\n", what);
  std::abort();
}

void check_runs(const Bitstream& stream, std::span<const Run> runs, std::span<const int64_t> frames) {
  int32_t end = 0;
  for (const Run& run : runs) {
    check(end <= run.first && run.first < run.last, "runs are in order and not empty");
    end = run.last;
  }
  check(end <= static_cast<int32_t>(stream.packets().size()), "runs end within the stream");
  for (const int64_t frame : frames) {
    const int32_t packet = stream.frames()[static_cast<size_t>(frame)];
    check(
        std::any_of(runs.begin(), runs.end(), [&](const Run& run) { return run.first <= packet && packet < run.last; }),
        "each frame's packet is in a run");
  }
}

Layout choose_layout(Random& random) {
  switch (random() % 4) {
    case 0:
      return {LayoutKind::kPatches, 28, 56, 14, static_cast<int>(1 + random() % 3), 2};
    case 1:
      return {LayoutKind::kChw, static_cast<int>(1 + random() % 64), static_cast<int>(1 + random() % 64)};
    case 2:
      return {LayoutKind::kRaw};
    default:
      return {LayoutKind::kHwc};
  }
}

}  // namespace

Random random_of(std::span<const uint8_t> bytes) {
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 1099511628211U;
  return Random(hash);
}

BitstreamPtr analyse(std::span<const uint8_t> bytes, std::string& error) {
  // An engine keeps the stream for a while after its last frame.
  const auto owner = std::make_shared<std::vector<uint8_t>>(bytes.begin(), bytes.end());
  try {
    auto stream =
        std::make_shared<Bitstream>(open_memory(*owner, owner, "input"), -1, Limits{.max_pixels = kMaxPixels});
    check(!stream->frames().empty() && !stream->gops().empty(), "a stream has frames");
    for (int32_t i = 0; i < static_cast<int32_t>(stream->frames().size()); ++i) {
      check(stream->packets()[stream->frames()[i]].frame == i, "frames and packets point at each other");
      stream->frame_duration(i);
    }
    stream->end_pts();
    return stream;
  } catch (const DecodeError& refusal) {
    error = refusal.what();
    return nullptr;
  }
}

std::vector<int64_t> choose_frames(const Bitstream& stream, Random& random) {
  const auto count = static_cast<int64_t>(stream.frames().size());
  std::vector<int64_t> frames(1 + random() % 16);
  const int64_t first = static_cast<int64_t>(random() % static_cast<uint64_t>(count));
  const bool neighbours = random() % 2 == 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    frames[i] = neighbours ? std::min(first + static_cast<int64_t>(i), count - 1)
                           : static_cast<int64_t>(random() % static_cast<uint64_t>(count));
  }
  return frames;
}

void plan(const Bitstream& stream, std::span<const int64_t> frames, Random& random) {
  const int group_frames = static_cast<int>(1 + random() % 3);
  const int engines = static_cast<int>(1 + random() % 4);
  try {
    check_runs(stream, find_runs(stream, frames), frames);
    int32_t end = 0;
    for (const Segment& segment : make_segments(stream, frames, group_frames, engines)) {
      check(segment.first == end && segment.last > end, "segments follow each other");
      end = segment.last;
      const auto part = frames.subspan(segment.first, segment.last - segment.first);
      check_runs(stream, segment.runs, part);
      const PacketCount count = count_packets(stream, segment.runs, part);
      check(count.needed > 0, "something is decoded");
    }
    check(end == static_cast<int32_t>(frames.size()), "segments hold all frames");
  } catch (const DecodeError&) {
    return;  // packets that the plan looks into cannot be read
  }
}

int decode(const BitstreamPtr& stream, const std::vector<int64_t>& frames, Random& random, std::string& error) {
  static const auto scheduler = std::make_shared<Scheduler>(EngineKinds(backends_for({}), kEngines), kDecoderBytes);
  const Layout layout = choose_layout(random);
  const RequestOptions options{.fast = random() % 4 == 0, .report = random() % 2 == 0};
  Session session(scheduler, kOutputBytes);
  session.add(stream, frames, layout, options, nullptr);
  int groups = 0;
  for (bool done = false; !done;) {
    std::optional<Output> output = session.take(std::chrono::hours(1));
    check(output.has_value(), "outputs come");
    done = output->done;
    check(done || !output->error || options.report, "an error ends a request that wants no report");
    if (output->error) {
      error = output->error->what();
      continue;
    }
    ++groups;
    check(output->data != nullptr && output->bytes > 0, "a group has data");
    if (layout.kind != LayoutKind::kRaw && layout.height > 0) {
      check(output->bytes == layout.group_bytes(), "a group has its size");
    }
  }
  const int all = (static_cast<int>(frames.size()) + layout.group_frames() - 1) / layout.group_frames();
  check(error.empty() ? groups == all : groups < all, "all groups come, or an error");
  return groups;
}

}  // namespace flashcodec::fuzz
