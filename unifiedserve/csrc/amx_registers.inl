// The tile registers of AMX (Intel SDM, volume 2: LDTILECFG, TILELOADD, TDPBF16PS, TDPBSSD, TDPBSUD), in assembly: in
// the compilers' intrinsics a register's number can be no template's parameter, and GCC's do not tell it all memory
// that they read.
#include <cstdint>

namespace unified {
namespace {

constexpr int kRegisters = 8;
constexpr int kRegisterRows = 16;
constexpr int kRegisterRowBytes = 64;

// How many rows and bytes of them registers have, as LDTILECFG reads it. Both or neither are 0.
struct RegisterShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};  // those behind `kRegisters` stay 0
  std::uint8_t rows[16] = {};

  void set(int number, int count, int bytes = kRegisterRowBytes) {
    row_bytes[number] = static_cast<std::uint16_t>(bytes);
    rows[number] = static_cast<std::uint8_t>(count);
  }
};
static_assert(sizeof(RegisterShapes) == 64);

inline void configure_registers(const RegisterShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }

// Without it, the thread's registers would have to be kept whenever another one gets its core.
inline void release_registers() { asm volatile("tilerelease"); }

template <int kNumber>
void zero_register() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kNumber));
}

// `stride` is in bytes, from a row to the next.
template <int kNumber>
void load_register(const void* from, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kNumber) : "memory");
}

template <int kNumber>
void store_register(void* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kNumber) : "memory");
}

// sums [rows, 16] of float32 += x [rows, 32] of bfloat16 times weights [16, 16, 2].
template <int kSums, int kX, int kWeights>
void multiply_registers() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kX), "i"(kWeights));
}

// sums [rows, 16] of 32 bits += x [rows, 64] of codes with a sign times weights [16, 16, 4] of codes without.
template <int kSums, int kX, int kWeights>
void multiply_code_registers() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kX), "i"(kWeights));
}

// The same with weights that have a sign, too.
template <int kSums, int kX, int kWeights>
void multiply_signed_registers() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kX), "i"(kWeights));
}

}  // namespace
}  // namespace unified
