// What the NAL unit headers of H.264 and HEVC packets tell without decoding.
#pragma once

#include <cstdint>
#include <span>

namespace flashcodec {

// How NAL units are told apart, and what the parameter sets say about temporal layers.
struct NalFormat {
  int length_bytes = 0;          // 0: start codes (Annex B)
  int highest_temporal_id = -1;  // HEVC; -1 if unknown

  // From avcC or hvcC, or Annex B parameter sets.
  static NalFormat of_h264(std::span<const uint8_t> configuration);
  static NalFormat of_hevc(std::span<const uint8_t> configuration);
};

struct H264Picture {
  bool needed = true;          // a reference (nal_ref_idc of any slice != 0, 7.4.1), or with parameter sets beside it
  bool random_access = false;  // IDR, or intra slices without a gradual refresh
};

H264Picture inspect_h264(std::span<const uint8_t> packet, const NalFormat& format);

// Whether the packet is a sub-layer non-reference picture of the highest temporal layer (HEVC 7.4.2.2), with nothing
// beside it that later pictures need. An SPS in the packet may raise the highest layer.
bool disposable_hevc(std::span<const uint8_t> packet, NalFormat& format);

// Whether the first sequence parameter set of an AVCDecoderConfigurationRecord (ISO/IEC 14496-15, 5.3.3.1) says nothing
// of colours and of the shape of pixels (H.264 7.3.2.1.1, E.1.1). Where that is not plain to see: false.
bool plain_h264(std::span<const uint8_t> record);

}  // namespace flashcodec
