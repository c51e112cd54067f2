// What the NAL unit headers of H.264 and HEVC packets tell without decoding.
#pragma once

#include <cstdint>
#include <span>

#include "ffmpeg.h"

namespace flashcodec {

// How NAL units are told apart, and what the parameter sets say about temporal layers.
struct NalFormat {
  AVCodecID codec = AV_CODEC_ID_NONE;
  int length_bytes = 0;          // 0: start codes (Annex B)
  int highest_temporal_id = -1;  // HEVC; -1 if unknown

  static NalFormat of(const AVCodecParameters& parameters);
};

struct H264Picture {
  bool reference = true;      // nal_ref_idc of any slice != 0
  bool random_access = true;  // IDR, or intra slices without a gradual refresh
};

H264Picture inspect_h264(std::span<const uint8_t> packet, const NalFormat& format);

// No other picture is predicted from this one, so that it can be left out if it is not wanted itself:
// nal_ref_idc = 0 (H.264 7.4.1), or a sub-layer non-reference picture of the highest layer (HEVC 7.4.2.2).
bool disposable(std::span<const uint8_t> packet, const NalFormat& format);

}  // namespace flashcodec
