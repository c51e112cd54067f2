// The frame numbers that the stand-in's parser tells, as NVIDIA's does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "codecs/frame_numbers.h"
#include "engines/nvdec/cuvid_abi.h"

class ToldNumbers {
 public:
  // Say of a picture what the NAL units of its packet do, which have start codes.
  void tell(std::span<const uint8_t> packet, flashcodec::CuvidH264& picture) {
    flashcodec::visit_nals(packet, 0, [&](std::span<const uint8_t> nal) {
      const int type = nal[0] & 31;
      if (type == kSps) sps_ = flashcodec::read_h264_sps(nal);
      if (type != kSlice && type != kIdr) return true;
      if (!sps_) return false;
      const flashcodec::H264Slice slice = flashcodec::read_h264_slice(nal, *sps_);
      picture.log2_frame_nums_minus_4 = sps_->frame_number_bits - 4;
      picture.frame_num = static_cast<int>(slice.frame_number);
      picture.is_reference = slice.reference ? 1 : 0;
      return false;
    });
  }

 private:
  static constexpr int kSlice = 1, kIdr = 5, kSps = 7;

  std::optional<flashcodec::H264Sps> sps_{};
};
