// What H.264's sequence parameter sets say of a stream (7.3.2.1.1, E.1.1).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace flashcodec {

struct H264Sps {
  uint32_t profile = 0;
  uint32_t id = 0;
  uint32_t order_count_type = 0;
  int frame_number_bits = 4;
  bool allows_gaps = false;      // in frame numbers
  bool separate_planes = false;  // slices say which plane they are of
  bool tells_shape = false;      // of pixels
  bool tells_colours = false;    // or the range of values
  std::optional<uint32_t> reordered_frames{};

  // Pictures are shown in the order in which they are decoded (8.2.1.3, E.2.1; no B slices in Baseline, A.2.1).
  bool never_reorders() const {
    constexpr uint32_t kBaseline = 66;
    return order_count_type == 2 || profile == kBaseline || reordered_frames == 0;
  }
};

// Of a NAL unit, if it is whole.
std::optional<H264Sps> read_h264_sps(std::span<const uint8_t> nal);

// The first set of an AVCDecoderConfigurationRecord (ISO/IEC 14496-15, 5.3.3.1), if it is whole.
std::optional<H264Sps> first_h264_sps(std::span<const uint8_t> record);

}  // namespace flashcodec
