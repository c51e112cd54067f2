// The times that VOPs tell of themselves (ISO/IEC 14496-2, 6.3.5).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace flashcodec {

class VopClock {
 public:
  // Return whether a B-VOP is not between the two pictures that it refers to: one of them is missing. To be asked of
  // the configuration and of all packets in order.
  bool gap(std::span<const uint8_t> packet);

 private:
  void take_group(std::span<const uint8_t> header);
  bool take_vop(std::span<const uint8_t> vop);

  uint32_t ticks_ = 0;                   // a second; 0: not told yet
  int64_t second_ = 0;                   // of the last picture that others refer to
  int64_t second_before_ = 0;            // of the one before, from which B-VOPs count
  std::array<int64_t, 2> references_{};  // their times in ticks
  int known_ = 0;                        // of these
};

}  // namespace flashcodec
