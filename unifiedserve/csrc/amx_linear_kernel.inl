// Matrix products of bfloat16 in AMX's registers: 16 lanes of a panel fill one as they lie, and 32 rows
// meet two panels in four registers of sums. A product of registers takes 16 cycles, however few rows there are, in
// which memory brings less than its weights: so few rows are multiplied as many are, and a row's sums are always the
// same.
namespace unified {
namespace {

static_assert(kWidth == kPanelOutputs);  // a register's row of sums is a vector

constexpr int kBlockRows = 2 * kRegisterRows;
constexpr int kBlockPanels = 2;
constexpr std::int64_t kStepLanes = kRegisterRowBytes / 4;
// Weights of a block's panels stay in the first-level cache while all rows meet them.
constexpr std::int64_t kAmxPartLanes = 16 * kStepLanes;

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

template <int kHalves, int kPanel>
void add_panel(const float* weights) {
  load_register<weights_of(kPanel)>(weights, kRegisterRowBytes);
  multiply_registers<sums_of(0, kPanel), x_of(0), weights_of(kPanel)>();
  if constexpr (kHalves == 2) multiply_registers<sums_of(1, kPanel), x_of(1), weights_of(kPanel)>();
}

template <int kHalf, int kPanels, class Vector>
void put_half(Vector (*sums)[1][kPanels]) {
  constexpr std::int64_t kRow = std::int64_t{kHalf} * kRegisterRows;
  store_register<sums_of(kHalf, 0)>(&sums[kRow][0][0], sizeof sums[0]);
  if constexpr (kPanels == 2) store_register<sums_of(kHalf, 1)>(&sums[kRow][0][1], sizeof sums[0]);
}

template <int kHalves, int kPanels>
void zero_sums() {
  zero_register<sums_of(0, 0)>();
  if constexpr (kPanels == 2) zero_register<sums_of(0, 1)>();
  if constexpr (kHalves == 2) zero_register<sums_of(1, 0)>();
  if constexpr (kHalves == 2 && kPanels == 2) zero_register<sums_of(1, 1)>();
}

// `rows` for which the registers are configured, from `row` on.
template <int kHalves, int kPanels, class Fetch>
void amx_block(const LinearTile<BFloat16>& tile, const TilePart& part, std::int64_t output, std::int64_t row, int rows,
               const Fetch& fetch) {
  const std::int64_t x_stride = tile.inputs * static_cast<std::int64_t>(sizeof(BFloat16));
  const char* const x = reinterpret_cast<const char*>(tile.x) + row * x_stride + part.first * 4;
  zero_sums<kHalves, kPanels>();
  for (std::int64_t first = 0; first < part.lanes; first += kStepLanes) {
    for (std::int64_t lane = first; lane < first + kStepLanes; ++lane) fetch.lane(lane);
    load_register<x_of(0)>(x + first * 4, x_stride);
    if constexpr (kHalves == 2) load_register<x_of(1)>(x + kRegisterRows * x_stride + first * 4, x_stride);
    const float* const weights = part.panels + first * kLaneFloats;
    add_panel<kHalves, 0>(weights);
    if constexpr (kPanels == 2) add_panel<kHalves, 1>(weights + part.panel_stride);
  }
  Float sums[kHalves * kRegisterRows][1][kPanels];
  put_half<0>(sums);
  if constexpr (kHalves == 2) put_half<1>(sums);
  for (int r = 0; r < rows; ++r) target_of<BFloat16>(tile, output, row + r, part.first > 0).add_sums(sums[r]);
}

template <int kPanels>
void amx_rows(const LinearTile<BFloat16>& tile, const TilePart& part, std::int64_t output, int& configured) {
  const std::int64_t blocks = (tile.rows + kBlockRows - 1) / kBlockRows;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t row = block * kBlockRows;
    const int rows = static_cast<int>(tile.rows - row < kBlockRows ? tile.rows - row : kBlockRows);
    if (rows != configured) configure_block(configured = rows);
    with_fetch_of<kPanels>(part, block, blocks, [&](const auto& fetch) {
      if (rows > kRegisterRows) {
        amx_block<2, kPanels>(tile, part, output, row, rows, fetch);
      } else {
        amx_block<1, kPanels>(tile, part, output, row, rows, fetch);
      }
    });
  }
}

// The first `lanes` of the inputs' `all`, a part of them after the other.
inline void amx_lanes(const LinearTile<BFloat16>& tile, std::int64_t lanes, std::int64_t all) {
  int configured = 0;  // rows
  for (std::int64_t first = 0; first < lanes; first += kAmxPartLanes) {
    const std::int64_t after = first + kAmxPartLanes < lanes ? first + kAmxPartLanes : lanes;
    for (std::int64_t output = 0; output < tile.outputs; output += kBlockPanels * kPanelOutputs) {
      const std::int64_t left = tile.outputs - output - kBlockPanels * kPanelOutputs;
      const float* const weights = tile.panels + output * all + first * kLaneFloats;
      const float* const following = after < lanes ? tile.panels + after * kLaneFloats : nullptr;
      const float* const next = left > 0 ? weights + kBlockPanels * kPanelOutputs * all : following;
      const TilePart part{weights, all * kLaneFloats, first, after - first, next};
      if (left > -kPanelOutputs) {
        amx_rows<2>(tile, part, output, configured);
      } else {
        amx_rows<1>(tile, part, output, configured);
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
