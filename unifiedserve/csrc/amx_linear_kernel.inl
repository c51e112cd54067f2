// Matrix products of bfloat16 in AMX's registers: 16 lanes of a panel fill one as they lie, and 32 rows
// meet two panels in four registers of sums. A product of registers takes 16 cycles, however few rows there are, in
// which memory brings less than its weights: so few rows are multiplied as many are, and a row's sums are always the
// same. They go between registers and memory as they are, so that a sum goes on where a part of the inputs ended.
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

// A part of the inputs of a block's rows.
struct BlockRows {
  const char* x;
  std::int64_t stride;  // in bytes, from a row to the next
  std::int64_t steps;
  bool come_first;  // the weights that follow are not in a near cache yet
};

template <int kNumber>
using Register = std::integral_constant<int, kNumber>;

// Where a block's sums are.
struct BlockSums {
  float* y;
  std::int64_t stride;
  bool begun;         // they go on from what is there
  const float* bias;  // with which others begin, or null

  template <int kHalves, int kPanels>
  void begin() const {
    if (begun) {
      for_each<kHalves, kPanels>(
          [](float* from, std::int64_t bytes, auto sums, int) { load_register<sums>(from, bytes); });
    } else if (bias != nullptr) {
      for_each<kHalves, kPanels>(
          [&](float*, std::int64_t, auto sums, int panel) { load_register<sums>(bias + panel * kPanelOutputs, 0); });
    } else {
      zero_sums<kHalves, kPanels>();
    }
  }

  template <int kHalves, int kPanels>
  void put() const {
    for_each<kHalves, kPanels>([](float* to, std::int64_t bytes, auto sums, int) { store_register<sums>(to, bytes); });
  }

 private:
  // Calls call(where they are, bytes from a row to the next, which register has them, panel).
  template <int kHalves, int kPanels, class Call>
  void for_each(Call call) const {
    const std::int64_t bytes = stride * static_cast<std::int64_t>(sizeof(float));
    const auto half = [&]<int kHalf>() {
      float* const from = y + kHalf * kRegisterRows * stride;
      call(from, bytes, Register<sums_of(kHalf, 0)>{}, 0);
      if constexpr (kPanels == 2) call(from + kPanelOutputs, bytes, Register<sums_of(kHalf, 1)>{}, 1);
    };
    half.template operator()<0>();
    if constexpr (kHalves == 2) half.template operator()<1>();
  }
};

// To vectors [rows, kPanels].
template <int kHalves, int kPanels>
void put_sums(void* to) {
  BlockSums{static_cast<float*>(to), kPanels * kPanelOutputs, false, nullptr}.put<kHalves, kPanels>();
}

// Calls call.operator()<halves>(row, rows) for blocks of rows, for which the registers are configured.
template <class Call>
void for_row_blocks(std::int64_t rows, Call call) {
  int configured = 0;  // rows
  for (std::int64_t row = 0; row < rows; row += kBlockRows) {
    const int count = static_cast<int>(rows - row < kBlockRows ? rows - row : kBlockRows);
    if (count != configured) configure_block(configured = count);
    if (count > kRegisterRows) {
      call.template operator()<2>(row, count);
    } else {
      call.template operator()<1>(row, count);
    }
  }
}

// A step's weights of a panel.
inline void fetch_step(const float* weights) {
#pragma GCC unroll 16
  for (int lane = 0; lane < kRegisterRows; ++lane) __builtin_prefetch(weights + lane * kLaneFloats, 0, 2);
}

// Of rows for which the registers are configured; from a panel to the next there are `stride` floats.
template <int kHalves, int kPanels>
void amx_block(const BlockRows& rows, const float* weights, std::int64_t stride, const BlockSums& sums) {
  sums.begin<kHalves, kPanels>();
  for (std::int64_t step = 0; step < rows.steps; ++step, weights += kStepLanes * kLaneFloats) {
    for (int panel = 0; rows.come_first && panel < kPanels; ++panel) fetch_step(weights + (kPanels + panel) * stride);
    add_step<MultiplyPairs, kHalves, kPanels>(rows.x + step * kRegisterRowBytes, rows.stride, weights,
                                              weights + stride);
  }
  sums.put<kHalves, kPanels>();
}

// The same of `outputs` that do not fill the last panel.
template <int kHalves, int kPanels>
void amx_part_of_block(const BlockRows& rows, const float* weights, std::int64_t stride, const BlockSums& sums,
                       int count, std::int64_t outputs) {
  Float whole[kHalves * kRegisterRows][kPanels] = {};
  const auto for_sums = [&](auto call) {
    for (int r = 0; r < count; ++r) {
      for (int p = 0; p < kPanels; ++p) {
        const std::int64_t first = p * kPanelOutputs;
        call(sums.y + r * sums.stride + first, whole[r][p], outputs - first < kWidth ? outputs - first : kWidth);
      }
    }
  };
  if (sums.begun) for_sums([](const float* y, Float& sum, std::int64_t left) { sum = take(y, left); });
  amx_block<kHalves, kPanels>(rows, weights, stride,
                              {reinterpret_cast<float*>(whole), kPanels * kPanelOutputs, sums.begun, sums.bias});
  for_sums([](float* y, const Float& sum, std::int64_t left) { put(y, sum, left); });
}

// All outputs of a block's `count` rows, from `row` and the lane `first` on; a row has `all` lanes.
template <int kHalves>
void amx_outputs(const LinearTile<BFloat16>& tile, const BlockRows& rows, std::int64_t row, int count,
                 std::int64_t first, std::int64_t all) {
  const std::int64_t stride = all * kLaneFloats;
  const bool begun = tile.accumulate || first > 0;
  for (std::int64_t output = 0; output < tile.outputs; output += kBlockPanels * kPanelOutputs) {
    const float* const weights = tile.panels + output * all + first * kLaneFloats;
    const std::int64_t left = tile.outputs - output;
    float bias[kBlockPanels * kPanelOutputs];
    const bool has_bias = tile.bias != nullptr && !begun;
    if (has_bias) floats_of<kBlockPanels * kPanelOutputs>(tile.bias + output, left, bias);
    const BlockSums sums{tile.y + row * tile.y_stride + output, tile.y_stride, begun, has_bias ? bias : nullptr};
    if (left >= kBlockPanels * kPanelOutputs) {
      amx_block<kHalves, 2>(rows, weights, stride, sums);
    } else if (left > kPanelOutputs) {
      amx_part_of_block<kHalves, 2>(rows, weights, stride, sums, count, left);
    } else if (left == kPanelOutputs) {
      amx_block<kHalves, 1>(rows, weights, stride, sums);
    } else {
      amx_part_of_block<kHalves, 1>(rows, weights, stride, sums, count, left);
    }
  }
}

// The first `lanes` of the inputs' `all`, a part of them after the other.
inline void amx_lanes(const LinearTile<BFloat16>& tile, std::int64_t lanes, std::int64_t all) {
  const std::int64_t stride = tile.inputs * static_cast<std::int64_t>(sizeof(BFloat16));
  for (std::int64_t first = 0; first < lanes; first += kPartSteps * kStepLanes) {
    const std::int64_t left = (lanes - first) / kStepLanes;
    for_row_blocks(tile.rows, [&]<int kHalves>(std::int64_t row, int count) {
      const BlockRows rows{reinterpret_cast<const char*>(tile.x) + row * stride + first * 4, stride,
                           left < kPartSteps ? left : kPartSteps, row == 0};
      amx_outputs<kHalves>(tile, rows, row, count, first, all);
    });
  }
  release_registers();
}

inline void add_bias(const LinearTile<BFloat16>& tile) {
  for (std::int64_t row = 0; tile.bias != nullptr && row < tile.rows; ++row) {
    float* const y = tile.y + row * tile.y_stride;
    for_vectors(tile.outputs, [&](std::int64_t i, std::int64_t count) {
      put(y + i, take(y + i, count) + take(tile.bias + i, count), count);
    });
  }
}

inline void amx_linear(const LinearTile<BFloat16>& tile) {
  const std::int64_t all = tile.inputs * static_cast<std::int64_t>(sizeof(BFloat16)) / 4;
  const std::int64_t whole = all / kStepLanes * kStepLanes;
  if (whole > 0) {
    if (tile.accumulate) add_bias(tile);  // sums that go on begin with none
    amx_lanes(tile, whole, all);
  }
  if (whole == all) return;
  for (std::int64_t output = 0; output < tile.outputs; output += kPanelOutputs) {
    const float* const weights = tile.panels + output * all + whole * kLaneFloats;
    linear_part<BFloat16, Lane<BFloat16>, kPanelVectors>(
        tile, {weights, all * kLaneFloats, whole, all - whole, nullptr}, output);
  }
}

}  // namespace
}  // namespace unified
