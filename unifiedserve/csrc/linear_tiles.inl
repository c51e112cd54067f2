// How a matrix product is cut: some rows meet some panels' weights, which are all that is kept in registers besides
// sums. What comes next of the weights is fetched meanwhile.
namespace unified {
namespace {

constexpr int kPanelVectors = kPanelOutputs / kWidth;
constexpr int kWideVectors = SIMD_WIDTH == 16 ? 4 : kPanelVectors;  // of a tile, where there are as many
// Of a tile that has more rows and fewer panels, in as many registers: so that up to so many rows are one tile.
constexpr int kTallRows = 8;
constexpr int kTallVectors = 3;
constexpr std::int64_t kLaneFloats = kPanelOutputs;

// The weights of a tile: a part of the lanes of some panels.
struct TilePart {
  const float* panels;        // the first lane
  std::int64_t panel_stride;  // floats
  std::int64_t first;         // lane
  std::int64_t lanes;
  const float* next;  // what is needed after it, of as many panels and lanes; or null
};

// What a tile of rows fetches of as many panels, lane by lane. How many is known when it is compiled: a count in a
// register would be one too many for the tile's loop.
template <int kPanels>
struct FetchNext {
  // Of several equal tiles of at most so many rows each has at least half of them.
  static constexpr int least_rows(int most) { return (most + 1) / 2; }

  const float* from;  // of what comes after the part
  std::int64_t panel_stride;

  void lane(std::int64_t i) const {
    // Not into the first-level cache, which is full of what is at hand.
#pragma GCC unroll 8
    for (int panel = 0; panel < kPanels; ++panel)
      __builtin_prefetch(from + panel * panel_stride + i * kLaneFloats, 0, 1);
  }
};

// What the tile itself needs a little later: so many lines at a time are on their way.
template <int kPanels>
struct FetchAhead {
  static constexpr std::int64_t kLanes = 96 / kPanels;
  static constexpr int least_rows(int /*most*/) { return 1; }

  explicit FetchAhead(const TilePart& part)
      : from(part.panels + kLanes * kLaneFloats),
        after(part.next == nullptr ? from : part.next + (kLanes - part.lanes) * kLaneFloats),
        panel_stride(part.panel_stride),
        lanes(part.lanes - kLanes) {}

  const float* from;
  const float* after;  // behind so many lanes
  std::int64_t panel_stride;
  std::int64_t lanes;

  void lane(std::int64_t i) const {
    const float* const line = (i < lanes ? from : after) + i * kLaneFloats;
    if (kFetchIntoSecondLevel) return fetch<2>(line);
    // Not into the last-level cache: weights are read once a step, and others have theirs there.
    fetch<0>(line);
  }

  template <int kLocality>
  void fetch(const float* line) const {
#pragma GCC unroll 8
    for (int panel = 0; panel < kPanels; ++panel) __builtin_prefetch(line + panel * panel_stride, 0, kLocality);
  }
};

// Calls run(fetch), if `count` panels are kMost or a power of two below.
template <int kMost, class Run>
void with_fetch(const float* from, std::int64_t panel_stride, std::int64_t count, Run run) {
  if constexpr (kMost > 0) {
    if (count < kMost) return with_fetch<kMost / 2>(from, panel_stride, count, run);
  }
  run(FetchNext<kMost>{from, panel_stride});
}

// Calls run(fetch) with what a tile of rows is to fetch of `kPanels` panels: its share of what comes next. The first
// one of few, whose share would be more than a panel, waits for memory anyhow and fetches ahead for itself.
template <int kPanels, class Run>
void with_fetch_of(const TilePart& part, std::int64_t tile, std::int64_t tiles, Run run) {
  constexpr std::int64_t kFew = kPanels > 2 ? kPanels : 2;
  if (tile == 0 && tiles < kFew) return run(FetchAhead<kPanels>(part));
  if (part.next == nullptr) return run(FetchNext<0>{nullptr, 0});
  const std::int64_t first = kPanels * tile / tiles;
  const std::int64_t count = kPanels * (tile + 1) / tiles - first;
  with_fetch<kPanels>(part.next + first * part.panel_stride, part.panel_stride, count, run);
}

// Calls run(part, output, wide) for the tiles' weights of panels of `lanes` lanes, in parts of at most `depth`.
template <int kVectors, class Run>
void for_parts(const float* panels, std::int64_t outputs, std::int64_t lanes, std::int64_t depth, Run run) {
  constexpr std::int64_t kWideOutputs = kVectors * kWidth;
  const std::int64_t stride = lanes * kLaneFloats;
  for (std::int64_t output = 0; output < outputs;) {
    const bool wide = outputs - output >= kWideOutputs;
    const std::int64_t step = wide ? kWideOutputs : kPanelOutputs;
    const float* const weights = panels + output * lanes;
    const float* const following = output + step < outputs ? weights + step * lanes : nullptr;
    for (std::int64_t first = 0; first < lanes; first += depth) {
      const std::int64_t count = lanes - first < depth ? lanes - first : depth;
      const float* const next = first + count < lanes ? weights + (first + count) * kLaneFloats : following;
      run(TilePart{weights + first * kLaneFloats, stride, first, count, next}, output, wide);
    }
    output += step;
  }
}

// Calls run(first, count, tile, tiles) for at most `most` rows at a time, as equally many as can be.
template <class Run>
void for_row_tiles(std::int64_t rows, int most, Run run) {
  const std::int64_t tiles = (rows + most - 1) / most;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t first = rows * tile / tiles;
    run(first, static_cast<int>(rows * (tile + 1) / tiles - first), tile, tiles);
  }
}

// Where a tile's sums are: `outputs` of them there are, perhaps fewer than fit. They begin with the bias, if there is
// one, and what is there already if they `accumulate`.
template <class T>
struct TileTarget {
  float* y;
  std::int64_t stride;
  const T* bias;  // or null
  std::int64_t outputs;
  bool accumulate;

  template <int kRows, int kVectors>
  void take_sums(Float (&sums)[kRows][kVectors]) const {
    for_each(sums, [](Float& sum, float* /*y*/, Float first, std::int64_t /*count*/) { sum = first; });
  }

  template <int kRows, int kVectors>
  void put_sums(Float (&sums)[kRows][kVectors]) const {
    for_each(sums, [](Float& sum, float* to, Float /*first*/, std::int64_t count) { put(to, sum, count); });
  }

  // Adds sums that did not begin with what there was.
  template <int kRows, int kVectors>
  void add_sums(Float (&sums)[kRows][kVectors]) const {
    for_each(sums, [](Float& sum, float* to, Float first, std::int64_t count) { put(to, first + sum, count); });
  }

 private:
  // Calls call(sum, its place, what is to be before it, how many of its lanes there are).
  template <int kRows, int kVectors, class Call>
  void for_each(Float (&sums)[kRows][kVectors], Call call) const {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t left = outputs - v * kWidth;
      if (left <= 0) break;
      const std::int64_t count = left < kWidth ? left : kWidth;
      const Float begin = bias == nullptr ? Float{} : take(bias + v * kWidth, count);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        float* const to = y + r * stride + v * kWidth;
        call(sums[r][v], to, accumulate ? begin + take(to, count) : begin, count);
      }
    }
  }
};

// `count` values, or the first kMost of them, and zeros that fill the last vector.
template <int kMost, class T>
void floats_of(const T* values, std::int64_t count, float* floats) {
  for (std::int64_t first = 0; first < kMost && first < count; first += kWidth) {
    store(floats + first, take(values + first, count - first < kWidth ? count - first : kWidth));
  }
}

// Of a tile from `output` and `row` on, and a part of its lanes: the first part adds the bias.
template <class T, class Tile>
TileTarget<T> target_of(const Tile& tile, std::int64_t output, std::int64_t row, bool begun) {
  return {tile.y + row * tile.y_stride + output, tile.y_stride,
          tile.bias == nullptr || begun ? nullptr : tile.bias + output, tile.outputs - output,
          tile.accumulate || begun};
}

}  // namespace
}  // namespace unified
