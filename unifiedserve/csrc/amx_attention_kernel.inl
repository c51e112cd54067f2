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
    const BlockSums sums{m.out + row * m.out_stride + column, m.out_stride, m.accumulate, nullptr};
    sums.begin<kHalves, kPanels>();
    const float* left = m.left + row * m.left_stride;
    const float* right = m.right + column;
    for (std::int64_t lane = 0; lane < m.depth; lane += kStepLanes) {
      add_step<MultiplyPairs, kHalves, kPanels>(left + lane, 4 * m.left_stride, right, right + kPanelOutputs,
                                                4 * m.right_stride);
      for (int i = 0; i < kFetches; ++i) fetch.lane();
      right += kStepLanes * m.right_stride;
    }
    sums.put<kHalves, kPanels>();
  }
};

static_assert(RegisterProducts::kSequenceRows <= kSequenceBlock && kSequenceRows % kRegisterRows == 0);
static_assert(kRegisterRows == kRowPadding);

inline void amx_sequence(const SequenceTile<BFloat16>& tile) { Sequence<BFloat16, RegisterProducts>(tile).run(); }

}  // namespace
}  // namespace unified
