// Matrix products of bfloat16 in AMX's registers: 16 lanes of a panel fill one as they lie, and 32 rows
// meet two panels in four registers of sums. A product of registers takes 16 cycles, however few rows there are, in
// which memory brings less than its weights: so few rows are multiplied as many are, and a row's sums are always the
// same. A block's rows lie in the order of registers while the weights of all outputs pass.
namespace unified {
namespace {

static_assert(kWidth == kPanelOutputs);  // a register's row of sums is a vector

constexpr int kBlockRows = 2 * kRegisterRows;
constexpr int kBlockPanels = 2;
constexpr std::int64_t kStepLanes = kRegisterRowBytes / 4;
// Of a part of the inputs: rows of so many stay in the second-level cache, and few parts add to the same sums.
constexpr std::int64_t kPartSteps = 32;

// Which registers hold what, of upper and lower rows and of panels.
constexpr int sums_of(int half, int panel) { return half * kBlockPanels + panel; }
constexpr int x_of(int half) { return 4 + half; }
constexpr int weights_of(int panel) { return 6 + panel; }

// For so many rows, and lanes of weights.
inline void configure_block(int rows, int lanes = kRegisterRows) {
  RegisterShapes shapes;
  for (int half = 0; half < 2; ++half) {
    const int left = rows - half * kRegisterRows;
    if (left <= 0) break;
    const int count = left < kRegisterRows ? left : kRegisterRows;
    shapes.set(x_of(half), count, 4 * lanes);
    for (int panel = 0; panel < kBlockPanels; ++panel) shapes.set(sums_of(half, panel), count);
  }
  for (int panel = 0; panel < kBlockPanels; ++panel) shapes.set(weights_of(panel), lanes);
  configure_registers(shapes);
}

template <int kHalf, int kPanels>
void put_half(char* sums) {
  constexpr std::int64_t kRowBytes = std::int64_t{kPanels} * kRegisterRowBytes;
  store_register<sums_of(kHalf, 0)>(sums, kRowBytes);
  if constexpr (kPanels == 2) store_register<sums_of(kHalf, 1)>(sums + kRegisterRowBytes, kRowBytes);
}

// To vectors [rows, kPanels].
template <int kHalves, int kPanels>
void put_sums(void* to) {
  char* const sums = static_cast<char*>(to);
  put_half<0, kPanels>(sums);
  if constexpr (kHalves == 2) put_half<1, kPanels>(sums + kRegisterRows * kPanels * kRegisterRowBytes);
}

// Adds the products of a step, whose rows of x lie `stride` bytes from each other, with the weights of each panel.
template <class Multiply, int kHalves, int kPanels>
void add_step(const void* x, std::int64_t stride, const void* weights, const void* next_weights,
              std::int64_t weight_stride = kRegisterRowBytes) {
  load_register<x_of(0)>(x, stride);
  load_register<weights_of(0)>(weights, weight_stride);
  Multiply::template run<sums_of(0, 0), x_of(0), weights_of(0)>();
  if constexpr (kHalves == 2) {
    load_register<x_of(1)>(static_cast<const char*>(x) + kRegisterRows * stride, stride);
    Multiply::template run<sums_of(1, 0), x_of(1), weights_of(0)>();
  }
  if constexpr (kPanels == 2) {
    load_register<weights_of(1)>(next_weights, weight_stride);
    Multiply::template run<sums_of(0, 1), x_of(0), weights_of(1)>();
    if constexpr (kHalves == 2) Multiply::template run<sums_of(1, 1), x_of(1), weights_of(1)>();
  }
}

struct MultiplyPairs {
  template <int kSums, int kX, int kWeights>
  static void run() {
    multiply_registers<kSums, kX, kWeights>();
  }
};

template <int kHalves, int kPanels>
void zero_sums() {
  zero_register<sums_of(0, 0)>();
  if constexpr (kPanels == 2) zero_register<sums_of(0, 1)>();
  if constexpr (kHalves == 2) zero_register<sums_of(1, 0)>();
  if constexpr (kHalves == 2 && kPanels == 2) zero_register<sums_of(1, 1)>();
}

// A part of the lanes of a block's rows.
class PackedRows {
 public:
  PackedRows(const LinearTile<BFloat16>& tile, std::int64_t row, int rows, std::int64_t first_lane, std::int64_t steps)
      : steps_(steps) {
    const std::int64_t stride = tile.inputs * static_cast<std::int64_t>(sizeof(BFloat16));
    const char* x = reinterpret_cast<const char*>(tile.x) + row * stride + first_lane * 4;
    for (int r = 0; r < rows; ++r, x += stride) {
      for (std::int64_t step = 0; step < steps; ++step)
        std::memcpy(values_[step][r], x + step * kRegisterRowBytes, kRegisterRowBytes);
    }
  }

  std::int64_t steps() const { return steps_; }
  const void* rows(std::int64_t step) const { return values_[step]; }

 private:
  std::int64_t steps_;
  alignas(64) char values_[kPartSteps][kBlockRows][kRegisterRowBytes];
};

// Of rows for which the registers are configured; from a panel to the next there are `stride` floats.
template <int kHalves, int kPanels>
void amx_block(const PackedRows& x, const float* weights, std::int64_t stride, const TileTarget<BFloat16>& target,
               int rows) {
  zero_sums<kHalves, kPanels>();
  for (std::int64_t step = 0; step < x.steps(); ++step, weights += kStepLanes * kLaneFloats) {
    add_step<MultiplyPairs, kHalves, kPanels>(x.rows(step), kRegisterRowBytes, weights, weights + stride);
  }
  Float sums[kHalves * kRegisterRows][1][kPanels];
  put_sums<kHalves, kPanels>(sums);
  TileTarget<BFloat16> row = target;
  for (int r = 0; r < rows; ++r, row.y += row.stride) row.add_sums(sums[r]);
}

// All outputs of a block's rows, of a part of the lanes; a row has `all` lanes.
template <int kHalves>
void amx_outputs(const LinearTile<BFloat16>& tile, const PackedRows& x, std::int64_t row, int rows, std::int64_t first,
                 std::int64_t all) {
  for (std::int64_t output = 0; output < tile.outputs; output += kBlockPanels * kPanelOutputs) {
    const float* const weights = tile.panels + output * all + first * kLaneFloats;
    const TileTarget<BFloat16> target = target_of<BFloat16>(tile, output, row, first > 0);
    if (tile.outputs - output > kPanelOutputs) {
      amx_block<kHalves, 2>(x, weights, all * kLaneFloats, target, rows);
    } else {
      amx_block<kHalves, 1>(x, weights, all * kLaneFloats, target, rows);
    }
  }
}

// The first `lanes` of the inputs' `all`, a part of them after the other.
inline void amx_lanes(const LinearTile<BFloat16>& tile, std::int64_t lanes, std::int64_t all) {
  int configured = 0;  // rows
  for (std::int64_t first = 0; first < lanes; first += kPartSteps * kStepLanes) {
    const std::int64_t left = (lanes - first) / kStepLanes;
    for (std::int64_t row = 0; row < tile.rows; row += kBlockRows) {
      const int rows = static_cast<int>(tile.rows - row < kBlockRows ? tile.rows - row : kBlockRows);
      if (rows != configured) configure_block(configured = rows);
      const PackedRows x(tile, row, rows, first, left < kPartSteps ? left : kPartSteps);
      if (rows > kRegisterRows) {
        amx_outputs<2>(tile, x, row, rows, first, all);
      } else {
        amx_outputs<1>(tile, x, row, rows, first, all);
      }
    }
  }
  release_registers();
}

inline void amx_linear(const LinearTile<BFloat16>& tile) {
  const std::int64_t all = tile.inputs * static_cast<std::int64_t>(sizeof(BFloat16)) / 4;
  const std::int64_t whole = all / kStepLanes * kStepLanes;
  if (whole > 0) amx_lanes(tile, whole, all);
  if (whole == all) return;
  for (std::int64_t output = 0; output < tile.outputs; output += kPanelOutputs) {
    const float* const weights = tile.panels + output * all + whole * kLaneFloats;
    linear_part<BFloat16, Lane<BFloat16>, kPanelVectors>(
        tile, {weights, all * kLaneFloats, whole, all - whole, nullptr}, output);
  }
}

}  // namespace
}  // namespace unified
