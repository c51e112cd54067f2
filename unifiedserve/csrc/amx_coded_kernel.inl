// Matrix products of codes in AMX's registers, for many rows. A group's products are the same integers as elsewhere,
// and are added in the same order, so that no bit of a sum tells where it was made.
namespace unified {
namespace {

// Sums of so many rows and two panels stay in the first-level cache while all groups meet them.
constexpr int kCodedBlockRows = 4 * kBlockRows;
// Groups of so many lanes whose products meet the sums at once. Large ones do less often, and fill the cache.
constexpr int together(int lanes) { return lanes > 32 ? 1 : 2; }

using Bytes __attribute__((vector_size(4 * SIMD_WIDTH))) = std::uint8_t;

// The codes of some groups and panels as registers take them: four inputs to a lane, each in a byte. Where all zeros
// are whole, codes lie without them, as numbers with a sign: then nothing is left to be taken off their products.
template <int kBits, int kLanes, int kPanels>
class CodedGroups {
 public:
  static constexpr int kTogether = together(kLanes);
  // Registers of a group.
  static constexpr int kSteps = kLanes > kRegisterRows ? kLanes / kRegisterRows : 1;

  void take(const CodedPart& work, std::int64_t first, int count) {
    first_ = first;
    count_ = count;
    has_sign_ = true;
    for_each([&](int group, int panel) {
      const std::int64_t number = panel * work.groups + first + group;
      scales_[group][panel] = {load(work.zeros.at(number)), load(work.scales + number * kPanelOutputs)};
      has_sign_ = has_sign_ && leaves_bytes(scales_[group][panel].zeros);
    });
    constexpr int kWeightLanes = kLanes * kBits / 8;
    for_each([&](int group, int panel) {
      Float& own = scales_[group][panel].zeros;
      const Bytes zeros = has_sign_ ? in_bytes(own) : Bytes{};
      if (work.x.zero != nullptr) own = splat(1.0F);  // it is part of the rows' sums
      const float* from =
          work.part.panels + panel * work.part.panel_stride + (first + group) * kWeightLanes * kLaneFloats;
      Bytes* out = codes_[group][panel];
#pragma GCC unroll 32
      for (int i = 0; i < kWeightLanes; ++i, from += kLaneFloats) {
        const Int lane = __builtin_bit_cast(Int, load(from));
#pragma GCC unroll 2
        for (int part = 0; part < 8 / kBits; ++part)
          *out++ = __builtin_bit_cast(Bytes, part_of<kBits>(lane, part)) - zeros;
      }
    });
  }

  std::int64_t first() const { return first_; }
  int count() const { return count_; }
  bool has_sign() const { return has_sign_; }
  const void* codes(int group, int panel, int step) const { return codes_[group][panel] + step * kRegisterRows; }
  const GroupScales& scales(int group, int panel) const { return scales_[group][panel]; }

 private:
  // Whether all codes less these are whole numbers of a byte with a sign.
  static bool leaves_bytes(Float zeros) {
    constexpr int kMost = kBits == 8 ? 255 : 15;
    const Int whole = __builtin_convertvector(zeros, Int);
    const Int fits = (__builtin_convertvector(whole, Float) == zeros) & (whole >= kMost - 127) & (whole <= 128);
    return _mm512_movepi32_mask(__builtin_bit_cast(__m512i, fits)) == kAllLanes;
  }

  // Each in all bytes of its lane.
  static Bytes in_bytes(Float zeros) {
    return __builtin_bit_cast(Bytes, (__builtin_convertvector(zeros, Int) & 0xff) * 0x01010101);
  }

  template <class Call>
  void for_each(Call call) const {
    for (int group = 0; group < count_; ++group)
      for (int panel = 0; panel < kPanels; ++panel) call(group, panel);
  }

  Bytes codes_[kTogether][kPanels][kLanes];
  GroupScales scales_[kTogether][kPanels];
  std::int64_t first_;
  int count_;
  bool has_sign_;
};

template <bool kSigned>
struct MultiplyCodes {
  template <int kSums, int kX, int kWeights>
  static void run() {
    if constexpr (kSigned) {
      multiply_signed_registers<kSums, kX, kWeights>();
    } else {
      multiply_code_registers<kSums, kX, kWeights>();
    }
  }
};

// Products of rows [.., inputs] for which the registers are configured, with a group's codes.
template <bool kSigned, int kHalves, int kBits, int kLanes, int kPanels>
void multiply_group(const std::int8_t* x, std::int64_t inputs, const CodedGroups<kBits, kLanes, kPanels>& groups,
                    int group, Int (*products)[kPanels]) {
  zero_sums<kHalves, kPanels>();
  for (int step = 0; step < groups.kSteps; ++step, x += kRegisterRowBytes) {
    add_step<MultiplyCodes<kSigned>, kHalves, kPanels>(x, inputs, groups.codes(group, 0, step),
                                                       groups.codes(group, kPanels - 1, step));
  }
  put_sums<kHalves, kPanels>(products);
}

// Products that have left the registers, and the rows' sums that they are to be added to.
template <class Groups, int kPanels>
class GroupProducts {
 public:
  void multiply(const CodedPart& work, std::int64_t row, int rows, const Groups& groups, Float (*sums)[1][kPanels]) {
    rows_ = rows;
    groups_ = &groups;
    sums_ = sums;
    table_ = row * work.groups + groups.first();
    const std::int8_t* x = work.x.codes + row * work.x.inputs + groups.first() * work.x.group;
    for (int group = 0; group < groups.count(); ++group, x += work.x.group) {
      with_kernel(groups.has_sign(), rows > kRegisterRows, [&]<bool kSigned, int kHalves>() {
        multiply_group<kSigned, kHalves>(x, work.x.inputs, groups, group, products_[group]);
      });
    }
  }

  void add(const CodedPart& work) const {
    if (rows_ == 0) return;
    if (groups_->count() < Groups::kTogether) {
      groups_->has_sign() ? add_groups<true, 1>(work) : add_groups<false, 1>(work);
    } else {
      groups_->has_sign() ? add_groups<true, Groups::kTogether>(work) : add_groups<false, Groups::kTogether>(work);
    }
  }

 private:
  template <class Call>
  static void with_kernel(bool has_sign, bool both_halves, Call call) {
    if (has_sign) {
      both_halves ? call.template operator()<true, 2>() : call.template operator()<true, 1>();
    } else {
      both_halves ? call.template operator()<false, 2>() : call.template operator()<false, 1>();
    }
  }

  template <bool kSigned, int kCount>
  void add_groups(const CodedPart& work) const {
    GroupScales scales[kCount][kPanels];  // in registers: stores to sums could change what lies in memory
    for (int group = 0; group < kCount; ++group)
      for (int p = 0; p < kPanels; ++p) scales[group][p] = groups_->scales(group, p);
    const float* x_scale = work.x.scales + table_;
    const float* x_sum = work.x.sums + table_;
    for (int r = 0; r < rows_; ++r, x_scale += work.groups, x_sum += work.groups) {
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        Float sum = sums_[r][0][p];
#pragma GCC unroll 2
        for (int group = 0; group < kCount; ++group) {
          const GroupScales& own = scales[group][p];
          sum = kSigned ? own.add_whole(sum, products_[group][r][p], x_scale[group])
                        : own.add(sum, products_[group][r][p], x_sum[group], x_scale[group]);
        }
        sums_[r][0][p] = sum;
      }
    }
  }

  Int products_[Groups::kTogether][kBlockRows][kPanels];
  std::int64_t table_;  // of the first row and group, in what there is of each
  const Groups* groups_;
  Float (*sums_)[1][kPanels];
  int rows_ = 0;
};

// Rows from `row` on: a block of them, or fewer than registers take at once. Products are added while the next ones
// are made: what leaves a register is late.
template <int kBits, int kLanes, int kPanels>
void coded_block(const CodedPart& work, std::int64_t row, int rows) {
  Float sums[kCodedBlockRows][1][kPanels];
  TileTarget<float> target = work.target;
  const auto for_rows = [&](auto call) {
    target.y = work.target.y + row * target.stride;
    for (int r = 0; r < rows; ++r, target.y += target.stride) call(sums[r]);
  };
  for_rows([&](auto& own) { target.take_sums(own); });
  using Groups = CodedGroups<kBits, kLanes, kPanels>;
  Groups groups[2];
  GroupProducts<Groups, kPanels> made[2];
  int turn = 0;
  for (std::int64_t first = 0; first < work.groups; first += Groups::kTogether) {
    const std::int64_t left = work.groups - first;
    Groups& next = groups[first / Groups::kTogether % 2];
    next.take(work, first, static_cast<int>(left < Groups::kTogether ? left : Groups::kTogether));
    for (int block = 0; block < rows; block += kBlockRows, turn ^= 1) {
      made[turn].multiply(work, row + block, rows - block < kBlockRows ? rows - block : kBlockRows, next, sums + block);
      made[turn ^ 1].add(work);
    }
  }
  made[turn ^ 1].add(work);
  for_rows([&](auto& own) { target.put_sums(own); });
}

template <int kBits, int kPanels, int kLanes>
void amx_coded_rows(const CodedPart& work) {
  constexpr int lanes = kLanes < kRegisterRows ? kLanes : kRegisterRows;
  const std::int64_t whole = work.rows / kBlockRows * kBlockRows;
  if (whole > 0) configure_block(kBlockRows, lanes);
  for (std::int64_t row = 0; row < whole; row += kCodedBlockRows) {
    const std::int64_t rows = whole - row < kCodedBlockRows ? whole - row : kCodedBlockRows;
    coded_block<kBits, kLanes, kPanels>(work, row, static_cast<int>(rows));
  }
  const int left = static_cast<int>(work.rows - whole);
  if (left == 0) return;
  configure_block(left, lanes);
  coded_block<kBits, kLanes, kPanels>(work, whole, left);
}

// Rows that have a single group, for which the registers are configured: products stay there until they are whole, and
// weights are taken as they lie.
template <int kHalves, int kPanels>
void single_group_block(const CodedPart& work, std::int64_t row, int rows) {
  zero_sums<kHalves, kPanels>();
  const std::int8_t* x = work.x.codes + row * work.x.inputs;
  const float* weights = work.part.panels;
  for (std::int64_t lane = 0; lane < work.part.lanes; lane += kRegisterRows) {
    add_step<MultiplyCodes<false>, kHalves, kPanels>(x, work.x.inputs, weights, weights + work.part.panel_stride);
    x += kRegisterRowBytes;
    weights += kRegisterRows * kLaneFloats;
  }
  Int products[kHalves * kRegisterRows][kPanels];
  put_sums<kHalves, kPanels>(products);
  GroupScales scales[kPanels];
  for (int p = 0; p < kPanels; ++p)
    scales[p] = {work.x.zero == nullptr ? load(work.zeros.at(p)) : splat(1.0F), load(work.scales + p * kPanelOutputs)};
  TileTarget<float> target = work.target;
  target.y += row * target.stride;
  for (int r = 0; r < rows; ++r, target.y += target.stride) {
    Float sums[1][kPanels] = {};
    target.take_sums(sums);
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p)
      sums[0][p] = scales[p].add(sums[0][p], products[r][p], work.x.sums[row + r], work.x.scales[row + r]);
    target.put_sums(sums);
  }
}

template <int kPanels>
void amx_single_group(const CodedPart& work) {
  for_row_blocks(work.rows, [&]<int kHalves>(std::int64_t row, int rows) {
    single_group_block<kHalves, kPanels>(work, row, rows);
  });
}

template <int kBits, int kPanels>
void amx_coded_part(const CodedPart& work) {
  if (work.x.group == 32) return amx_coded_rows<kBits, kPanels, 8>(work);
  if (work.x.group == 64) return amx_coded_rows<kBits, kPanels, 16>(work);
  if (work.x.group == 128) return amx_coded_rows<kBits, kPanels, 32>(work);
  if (work.x.group == 256) return amx_coded_rows<kBits, kPanels, 64>(work);
  if constexpr (kBits == 8) amx_single_group<kPanels>(work);
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
