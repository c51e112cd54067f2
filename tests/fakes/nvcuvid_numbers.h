// The frame numbers that the stand-in's parser tells, as NVIDIA's does (ITU-T H.264, 7.3.3).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "codecs/bit_reader.h"
#include "codecs/h264_sps.h"
#include "codecs/nal.h"
#include "engines/nvdec/cuvid_abi.h"

class FrameNumbers {
 public:
  // Say of a picture what the NAL units of its packet do, which have start codes.
  void tell(std::span<const uint8_t> packet, flashcodec::CuvidH264& picture) {
    flashcodec::visit_nals(packet, 0, [&](std::span<const uint8_t> nal) {
      const int type = nal[0] & 31;
      if (type == kSps) sps_ = flashcodec::read_h264_sps(nal);
      if (type != kSlice && type != kIdr) return true;
      if (sps_) tell_slice(nal, picture);
      return false;
    });
  }

 private:
  static constexpr int kSlice = 1, kIdr = 5, kSps = 7;
  static constexpr size_t kSliceHead = 24;

  void tell_slice(std::span<const uint8_t> slice, flashcodec::CuvidH264& picture) {
    const auto head = flashcodec::unescape(slice.subspan(1), kSliceHead);
    flashcodec::BitReader bits(head);
    for (int i = 0; i < 3; ++i) bits.exp_golomb();  // first_mb_in_slice, slice_type, pic_parameter_set_id
    picture.log2_frame_nums_minus_4 = sps_->frame_number_bits - 4;
    picture.frame_num = static_cast<int>(bits.bits(sps_->frame_number_bits));
    picture.is_reference = (slice[0] >> 5 & 3) != 0;
  }

  std::optional<flashcodec::H264Sps> sps_{};
};
