// Products and attention as they are computed on processors with AMX, for tests to call; its instructions may be
// stand-ins.
#include "linear.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "instructions.h"
#include "kernel_sets.h"
#include "native/instruction_sets.h"
#include "sequence_attention.h"

namespace unified {

const bool kFetchIntoSecondLevel = true;

const KernelSet& current_kernels() {
  static const KernelSet set = [] {
    KernelSet found{"amx", {}, kBf16Kernels};
    found.bfloat16.linear = kAmxProduct;
    found.bfloat16.linear_in_parts = true;
    found.bfloat16 = with_attention(found.bfloat16, kAmxAttention);
    found.bfloat16.codes_in_parts = amx_takes_codes;
    return with_products(found, kAmxCodedProducts);
  }();
  return set;
}

}  // namespace unified

using unified::BFloat16;

namespace {

// A copy behind which nothing can be read.
class GuardedCopy {
 public:
  GuardedCopy(const void* from, std::int64_t bytes) {
    const std::int64_t page = ::sysconf(_SC_PAGESIZE);
    const std::int64_t before = unified::round_up(bytes, page);
    size_ = static_cast<std::size_t>(before + page);
    start_ = static_cast<char*>(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(start_ + before, static_cast<std::size_t>(page), PROT_NONE);
    data_ = std::memcpy(start_ + before - bytes, from, static_cast<std::size_t>(bytes));
  }
  GuardedCopy(const GuardedCopy&) = delete;
  GuardedCopy& operator=(const GuardedCopy&) = delete;
  ~GuardedCopy() { ::munmap(start_, size_); }

  template <class T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }

 private:
  std::size_t size_;
  char* start_;
  const void* data_;
};

// Calls run() where this processor's AMX, or else the stand-in, carries the instructions out; returns whether registers
// were left as they were configured.
template <class Run>
bool with_instructions(Run run) {
  std::optional<fake::Instructions> stand_ins;
  if (!native::has_amx() || !native::may_use_amx()) stand_ins.emplace();
  run();
  return fake::tile_unit.configured();
}

bool multiplied(int threads, const BFloat16* x, std::int64_t rows, const unified::Weight<BFloat16>& weight, float* y,
                bool accumulate) {
  const GuardedCopy guarded(x, rows * weight.inputs * static_cast<std::int64_t>(sizeof(BFloat16)));
  return with_instructions([&] {
    unified::ThreadPool pool(threads);
    unified::linear(pool, guarded.as<BFloat16>(), rows, weight, y, accumulate);
  });
}

}  // namespace

// Returns whether this thread's registers, where they are stand-ins, were left as they were configured.
extern "C" bool amx_linear(int threads, const BFloat16* x, std::int64_t rows, const std::uint8_t* panels,
                           const BFloat16* bias, std::int64_t outputs, std::int64_t inputs, float* y, bool accumulate) {
  const std::int64_t lanes = unified::round_up(outputs, unified::kPanelOutputs) * inputs / 2;
  const GuardedCopy weights(panels, lanes * 4);
  return multiplied(threads, x, rows, {weights.as<std::uint8_t>(), bias, outputs, inputs, {}}, y, accumulate);
}

// Likewise, with weights of codes. All have the same zeros, or each panel's groups their own.
extern "C" bool amx_codes(int threads, const BFloat16* x, std::int64_t rows, const std::uint8_t* panels,
                          const BFloat16* bias, std::int64_t outputs, std::int64_t inputs, float* y, bool accumulate,
                          int bits, std::int64_t group, const unified::Float16* scales, const unified::Float16* zeros,
                          bool same_zeros) {
  const GuardedCopy weights(panels, unified::round_up(outputs, unified::kPanelOutputs) * inputs * bits / 8);
  const unified::WeightCodes codes{bits, group, scales, {zeros, same_zeros ? 0 : unified::kPanelOutputs}};
  return multiplied(threads, x, rows, {weights.as<std::uint8_t>(), bias, outputs, inputs, codes}, y, accumulate);
}

// Likewise, attention among sequences of `length` rows each.
extern "C" bool amx_sequences(int threads, const BFloat16* qkv, std::int64_t rows, std::int64_t heads,
                              std::int64_t head_dim, const float* cosine, const float* sine, float scale,
                              std::int64_t length, BFloat16* out) {
  const GuardedCopy guarded(qkv, rows * 3 * heads * head_dim * static_cast<std::int64_t>(sizeof(BFloat16)));
  const unified::SequenceGroup group{0, rows / length, length};
  return with_instructions([&] {
    unified::ThreadPool pool(threads);
    unified::attend_sequences<BFloat16>(pool, {guarded.as<BFloat16>(), rows, heads, head_dim, cosine, sine, scale},
                                        std::span(&group, 1), out);
  });
}
