// AMX's instructions on processors that do not know them: a handler of SIGILL carries them out.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tile_unit.h"

namespace fake {

inline thread_local TileUnit tile_unit;

enum Prefix { kNone, k66, kF3, kF2 };

// An instruction with a VEX prefix of three bytes (Intel SDM, volume 2, 2.3 and 2.1).
class Instruction {
 public:
  Instruction(const std::uint8_t* code, const greg_t* registers) : code_(code), registers_(registers) {}

  // Whether it is in map 0F38, with W and L of 0.
  bool known() const { return code_[0] == 0xc4 && (code_[1] & 0x1f) == 2 && (code_[2] & 0x84) == 0; }
  Prefix prefix() const { return static_cast<Prefix>(code_[2] & 3); }
  int opcode() const { return code_[3]; }
  int mod() const { return code_[4] >> 6; }
  int reg() const { return code_[4] >> 3 & 7; }
  int rm() const { return code_[4] & 7; }
  int third() const { return ~code_[2] >> 3 & 15; }  // register

  bool has_index() const { return mod() != 3 && rm() == 4 && index() != 4; }
  std::int64_t stride() const { return has_index() ? value(index()) << (code_[5] >> 6) : 0; }

  // Without the index.
  std::uint8_t* address() const {
    std::int64_t base = 0;
    if (mod() == 0 && rm() == 5) {
      base = reinterpret_cast<std::int64_t>(code_) + length();
    } else if (rm() != 4) {
      base = value(rm() | extended(0x20));
    } else if (mod() != 0 || (code_[5] & 7) != 5) {
      base = value((code_[5] & 7) | extended(0x20));
    }
    return reinterpret_cast<std::uint8_t*>(base + displacement());
  }

  int length() const { return displacement_at() + displacement_bytes(); }

 private:
  int extended(int bit) const { return (code_[1] & bit) == 0 ? 8 : 0; }
  int index() const { return (code_[5] >> 3 & 7) | extended(0x40); }
  int displacement_at() const { return mod() != 3 && rm() == 4 ? 6 : 5; }

  int displacement_bytes() const {
    const bool bare = mod() == 0 && (rm() == 5 || (rm() == 4 && (code_[5] & 7) == 5));
    return mod() == 2 || bare ? 4 : mod() == 1 ? 1 : 0;
  }

  std::int64_t displacement() const {
    std::int32_t wide = 0;
    if (displacement_bytes() == 1) return static_cast<std::int8_t>(code_[displacement_at()]);
    if (displacement_bytes() == 4) std::memcpy(&wide, code_ + displacement_at(), 4);
    return wide;
  }

  std::int64_t value(int number) const {
    static constexpr int kPlaces[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                      REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return registers_[kPlaces[number]];
  }

  const std::uint8_t* code_;
  const greg_t* registers_;
};

// Returns whether it is one of AMX's.
inline bool carry_out(const Instruction& at) {
  if (!at.known()) return false;
  const bool memory = at.mod() != 3;
  if (at.opcode() == 0x49 && at.prefix() == kNone && memory && at.reg() == 0) {
    tile_unit.configure(at.address());
  } else if (at.opcode() == 0x49 && at.prefix() == kNone && !memory) {
    tile_unit.release();
  } else if (at.opcode() == 0x49 && at.prefix() == kF2 && !memory) {
    tile_unit.zero(at.reg());
  } else if (at.opcode() == 0x4b && at.prefix() == kF2 && memory) {
    tile_unit.load(at.reg(), at.address(), at.stride());
  } else if (at.opcode() == 0x4b && at.prefix() == kF3 && memory) {
    tile_unit.store(at.reg(), at.address(), at.stride());
  } else if (at.opcode() == 0x5c && at.prefix() == kF3 && !memory) {
    tile_unit.multiply(at.reg(), at.rm(), at.third());
  } else if (at.opcode() == 0x5e && at.prefix() == kF3 && !memory) {
    tile_unit.multiply_bytes<std::uint8_t>(at.reg(), at.rm(), at.third());
  } else if (at.opcode() == 0x5e && at.prefix() == kF2 && !memory) {
    tile_unit.multiply_bytes<std::int8_t>(at.reg(), at.rm(), at.third());
  } else {
    return false;
  }
  return true;
}

inline void on_illegal_instruction(int /*signal*/, siginfo_t* /*info*/, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const Instruction at(reinterpret_cast<const std::uint8_t*>(registers[REG_RIP]), registers);
  try {
    if (!carry_out(at)) std::abort();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "AMX would fault: %s\n", error.what());
    std::abort();
  }
  registers[REG_RIP] += at.length();
}

// While one lives, AMX's instructions work in this process.
class Instructions {
 public:
  Instructions() {
    struct sigaction action = {};
    action.sa_sigaction = on_illegal_instruction;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &before_);
  }
  Instructions(const Instructions&) = delete;
  Instructions& operator=(const Instructions&) = delete;
  ~Instructions() { sigaction(SIGILL, &before_, nullptr); }

 private:
  struct sigaction before_ = {};
};

}  // namespace fake
