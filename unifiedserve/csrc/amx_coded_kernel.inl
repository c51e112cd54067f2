// Matrix products of codes in AMX's registers, for many rows: memory brings what they need in time by itself. A group's
// products are the same integers as elsewhere, and meet zeros and scales in the same order, so that no bit of a sum
// tells where it was made.
namespace unified {
namespace {

// Sums of so many rows and two panels stay in the first-level cache while all groups meet them.
constexpr int kCodedBlockRows = 4 * kBlockRows;
constexpr int kMostGroup = 128;

// A group's codes of some panels as registers take them: four inputs to a lane, in so many registers a panel.
template <int kPanels>
struct CodedGroup {
  const void* panels[kPanels];
  int steps;
  std::int64_t first;  // input
};

// Codes of 4 bits, each in a byte of its own.
template <int kPanels>
class WideCodes {
 public:
  void take(const float* panels, std::int64_t stride, std::int64_t lanes) {
    for (int panel = 0; panel < kPanels; ++panel) {
      const float* const from = panels + panel * stride;
      for (std::int64_t i = 0; i < lanes; ++i) {
        const Int lane = __builtin_bit_cast(Int, load(from + i * kLaneFloats));
        codes_[panel][2 * i] = part_of<4>(lane, 0);
        codes_[panel][2 * i + 1] = part_of<4>(lane, 1);
      }
    }
  }

  const void* of(int panel) const { return codes_[panel]; }

 private:
  Int codes_[kPanels][kMostGroup / 4];
};

template <int kHalves, int kPanel>
void add_coded_panel(const void* weights) {
  load_register<weights_of(kPanel)>(weights, kRegisterRowBytes);
  multiply_code_registers<sums_of(0, kPanel), x_of(0), weights_of(kPanel)>();
  if constexpr (kHalves == 2) multiply_code_registers<sums_of(1, kPanel), x_of(1), weights_of(kPanel)>();
}

// Products of rows [.., inputs] for which the registers are configured.
template <int kHalves, int kPanels>
void multiply_group(const std::int8_t* x, std::int64_t inputs, const CodedGroup<kPanels>& group,
                    Int (*products)[1][kPanels]) {
  constexpr std::int64_t kRegisterBytes = std::int64_t{kRegisterRows} * kRegisterRowBytes;
  zero_sums<kHalves, kPanels>();
  for (std::int64_t step = 0; step < group.steps; ++step) {
    const std::int8_t* const from = x + group.first + step * kRegisterRowBytes;
    load_register<x_of(0)>(from, inputs);
    if constexpr (kHalves == 2) load_register<x_of(1)>(from + kRegisterRows * inputs, inputs);
    add_coded_panel<kHalves, 0>(static_cast<const char*>(group.panels[0]) + step * kRegisterBytes);
    if constexpr (kPanels == 2) {
      add_coded_panel<kHalves, 1>(static_cast<const char*>(group.panels[1]) + step * kRegisterBytes);
    }
  }
  put_half<0, kPanels>(products);
  if constexpr (kHalves == 2) put_half<1, kPanels>(products);
}

// Products of a group that have left the registers, and the rows' sums that they are to be added to.
template <int kPanels>
struct GroupProducts {
  Int products[kBlockRows][1][kPanels];
  GroupScales scales[kPanels];
  std::int64_t table;  // of the first row, in what there is of each row and group
  int rows;
  Float (*sums)[1][kPanels];

  void multiply(const CodedPart& work, std::int64_t row, const CodedGroup<kPanels>& group) {
    const std::int8_t* const x = work.x.codes + row * work.x.inputs;
    table = row * work.groups + group.first / work.x.group;
    if (rows > kRegisterRows) {
      multiply_group<2>(x, work.x.inputs, group, products);
    } else {
      multiply_group<1>(x, work.x.inputs, group, products);
    }
  }

  void add(const CodedPart& work) const {
    const float* x_sum = work.x.sums + table;
    const float* x_scale = work.x.scales + table;
    for (int r = 0; r < rows; ++r, x_sum += work.groups, x_scale += work.groups) {
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p)
        sums[r][0][p] = scales[p].add(sums[r][0][p], products[r][0][p], *x_sum, *x_scale);
    }
  }
};

// Rows from `row` on: a block of them, or fewer than registers take at once. Products are added while the next ones
// are made: what leaves a register is late.
template <int kBits, int kPanels>
void coded_block(const CodedPart& work, std::int64_t row, int rows) {
  Float sums[kCodedBlockRows][1][kPanels];
  TileTarget<float> target = work.target;
  const auto for_rows = [&](auto call) {
    target.y = work.target.y + row * target.stride;
    for (int r = 0; r < rows; ++r, target.y += target.stride) call(sums[r]);
  };
  for_rows([&](auto& own) { target.take_sums(own); });
  WideCodes<kPanels> wide;
  GroupProducts<kPanels> made[2];
  made[1].rows = 0;
  int turn = 0;
  const int lanes = static_cast<int>(work.x.group / 4);
  CodedGroup<kPanels> group{{}, lanes > kRegisterRows ? lanes / kRegisterRows : 1, 0};
  for (std::int64_t number = 0; number < work.groups; ++number, group.first += work.x.group) {
    const std::int64_t first_lane = number * work.group_lanes;
    const float* const panels = work.part.panels + first_lane * kLaneFloats;
    if constexpr (kBits == 4) wide.take(panels, work.part.panel_stride, work.group_lanes);
    GroupScales scales[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      group.panels[p] = kBits == 4 ? wide.of(p) : panels + p * work.part.panel_stride;
      const std::int64_t table = (p * work.groups + number) * kPanelOutputs;
      scales[p] = {load(work.zeros + table), load(work.scales + table)};
    }
    for (int first = 0; first < rows; first += kBlockRows, turn ^= 1) {
      GroupProducts<kPanels>& next = made[turn];
      next.rows = rows - first < kBlockRows ? rows - first : kBlockRows;
      next.sums = sums + first;
      for (int p = 0; p < kPanels; ++p) next.scales[p] = scales[p];
      next.multiply(work, row + first, group);
      made[turn ^ 1].add(work);
    }
  }
  made[turn ^ 1].add(work);
  for_rows([&](auto& own) { target.put_sums(own); });
}

template <int kBits, int kPanels>
void amx_coded_part(const CodedPart& work) {
  const int lanes = static_cast<int>(work.x.group / 4 < kRegisterRows ? work.x.group / 4 : kRegisterRows);
  const std::int64_t whole = work.rows / kBlockRows * kBlockRows;
  if (whole > 0) configure_block(kBlockRows, lanes);
  for (std::int64_t row = 0; row < whole; row += kCodedBlockRows) {
    const std::int64_t rows = whole - row < kCodedBlockRows ? whole - row : kCodedBlockRows;
    coded_block<kBits, kPanels>(work, row, static_cast<int>(rows));
  }
  const int left = static_cast<int>(work.rows - whole);
  if (left == 0) return;
  configure_block(left, lanes);
  coded_block<kBits, kPanels>(work, whole, left);
}

template <class T, int kBits>
void amx_codes(const CodedTile<T>& tile) {
  if (!amx_takes_codes(tile.rows, tile.x.group)) return product_of<T, kBits>(kAvx512VnniProducts)(tile);
  for_coded_parts<kBits, kBlockPanels>(tile, tile.x.inputs, [](const CodedPart& work, bool wide) {
    if (wide) return amx_coded_part<kBits, kBlockPanels>(work);
    amx_coded_part<kBits, 1>(work);
  });
  release_registers();
}

}  // namespace
}  // namespace unified
