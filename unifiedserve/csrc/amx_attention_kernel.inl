// Products of attention's blocks in AMX's registers: keys and values lie as registers take them, because lanes of two
// are what vectors take, too.
namespace unified {
namespace {

class RegisterProducts {
 public:
  static constexpr int kSequenceRows = 2 * kBlockRows;
  static constexpr int kFetches = 16;  // with each step: the few steps of few rows fetch a block
  // Lanes of which whole registers are made, zeros behind the last.
  static constexpr std::int64_t whole(std::int64_t lanes) { return (lanes + kStepLanes - 1) / kStepLanes * kStepLanes; }

  RegisterProducts() { configure_block(kBlockRows); }
  ~RegisterProducts() { release_registers(); }
  RegisterProducts(const RegisterProducts&) = delete;
  RegisterProducts& operator=(const RegisterProducts&) = delete;

  // Of whole registers' rows: behind the last one there is room for what is nobody's.
  template <class Fetch = const NoFetch>
  void multiply(const Multiplication& m, int rows, std::int64_t columns, Fetch& fetch = NoFetch{}) const {
    for (int row = 0; row < rows; row += kBlockRows) {
      for (std::int64_t column = 0; column < columns; column += kBlockPanels * kPanelOutputs) {
        const bool both_panels = columns - column > kPanelOutputs;
        if (rows - row > kRegisterRows) {
          both_panels ? block<2, 2>(m, row, column, fetch) : block<2, 1>(m, row, column, fetch);
        } else {
          both_panels ? block<1, 2>(m, row, column, fetch) : block<1, 1>(m, row, column, fetch);
        }
      }
    }
  }

 private:
  template <int kHalves, int kPanels, class Fetch>
  static void block(const Multiplication& m, int row, std::int64_t column, Fetch& fetch) {
    float* const out = m.out + row * m.out_stride + column;
    if (m.accumulate) {
      for_sums<kHalves, kPanels>(
          out, m.out_stride, []<int kSums>(float* sums, std::int64_t stride) { load_register<kSums>(sums, stride); });
    } else {
      zero_sums<kHalves, kPanels>();
    }
    const float* left = m.left + row * m.left_stride;
    const float* right = m.right + column;
    for (std::int64_t lane = 0; lane < m.depth; lane += kStepLanes) {
      add_step<MultiplyPairs, kHalves, kPanels>(left + lane, 4 * m.left_stride, right, right + kPanelOutputs,
                                                4 * m.right_stride);
      for (int i = 0; i < kFetches; ++i) fetch.lane();
      right += kStepLanes * m.right_stride;
    }
    for_sums<kHalves, kPanels>(
        out, m.out_stride, []<int kSums>(float* sums, std::int64_t stride) { store_register<kSums>(sums, stride); });
  }

  // Calls call<register>(where it is in `out`, bytes from a row to the next).
  template <int kHalves, int kPanels, class Call>
  static void for_sums(float* out, std::int64_t stride, Call call) {
    const auto half = [&]<int kHalf>() {
      float* const sums = out + kHalf * kRegisterRows * stride;
      call.template operator()<sums_of(kHalf, 0)>(sums, 4 * stride);
      if constexpr (kPanels == 2) call.template operator()<sums_of(kHalf, 1)>(sums + kPanelOutputs, 4 * stride);
    };
    half.template operator()<0>();
    if constexpr (kHalves == 2) half.template operator()<1>();
  }
};

static_assert(RegisterProducts::kSequenceRows <= kSequenceBlock && kSequenceRows % kRegisterRows == 0);
static_assert(kRegisterRows == kRowPadding);

inline void amx_sequence(const SequenceTile<BFloat16>& tile) { Sequence<BFloat16, RegisterProducts>(tile).run(); }

}  // namespace
}  // namespace unified
