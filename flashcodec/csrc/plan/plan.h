// Which packets must be decoded for which frames, and who decodes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bitstream/bitstream.h"
#include "plan/run.h"

namespace flashcodec {

// The unit of scheduling: places [first, last) of the request's frame list, always whole temporal groups (but for
// the end of the list), and the runs that hold their frames.
struct Segment {
  int32_t first;
  int32_t last;
  std::vector<Run> runs;
  int64_t cost;       // estimated CPU time, microseconds
  bool wide = false;  // if it runs last and alone, all engines should help: frame threads
};

// The runs that decode `frames` (any order, repeats allowed): only GOPs that hold one, and each only up to the
// last frame wanted. A leading picture of an open GOP is decoded from the GOP before.
std::vector<Run> find_runs(const Bitstream& stream, std::span<const int64_t> frames);

// The first of the consecutive GOPs, up to its own, that a packet may need: leading pictures and GOPs that refresh the
// picture gradually refer to the GOP before.
int first_gop_needed(const Bitstream& stream, int32_t packet);

// Whether feeding `packet` within `run` is pointless: leading pictures of the run's own key frame lack references.
bool undecodable(const Bitstream& stream, const Run& run, int32_t packet);

struct PacketCount {
  int64_t needed = 0;
  int64_t skipped = 0;  // inside the runs, but not decoded
  int64_t cost = 0;     // of the needed ones: estimated CPU time, microseconds
};

// Reads the packets of the runs to tell which of them are decoded for `frames`.
PacketCount count_packets(const Bitstream& stream, std::span<const Run> runs, std::span<const int64_t> frames);

// The same, about: reads a few of the runs only, and takes what cannot be read for needed.
PacketCount estimate_packets(const Bitstream& stream, std::span<const Run> runs, std::span<const int64_t> frames);

// Splits the frame list into segments of consecutive GOPs (UnifiedServe, Algorithm 1), cut where hardly anything is
// decoded twice and ever smaller towards the end (guided self-scheduling: Polychronopoulos and Kuck, 1987), so that
// `engines` decoders finish together. Groups are `group_frames` long: a segment takes frames from its right
// neighbour's GOP rather than leave a group incomplete.
std::vector<Segment> make_segments(const Bitstream& stream, std::span<const int64_t> frames, int group_frames,
                                   int engines);

}  // namespace flashcodec
