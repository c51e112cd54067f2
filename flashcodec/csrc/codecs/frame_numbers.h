// Whether reference pictures of an H.264 stream are missing, by their numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "codecs/h264_sps.h"
#include "codecs/nal.h"

namespace flashcodec {

// What a slice says of its picture (slice_header(), 7.3.3, up to frame_num).
struct H264Slice {
  uint32_t frame_number;
  bool idr;
  bool reference;
};

// `nal` is a slice's, whose sequence parameter set is `sps`.
H264Slice read_h264_slice(std::span<const uint8_t> nal, const H264Sps& sps);

class FrameNumbers {
 public:
  // `configuration`: an AVCDecoderConfigurationRecord or parameter sets with start codes.
  explicit FrameNumbers(std::span<const uint8_t> configuration);

  // Return whether pictures are missing before that of the packet (8.2.5.2). To be asked of all packets in order.
  bool gap(std::span<const uint8_t> packet, const NalFormat& format);

 private:
  void take_sps(std::span<const uint8_t> nal);
  bool take_slice(std::span<const uint8_t> nal);

  std::optional<H264Sps> sps_;
  bool several_ = false;          // sets of different ids: slices do not tell which is theirs
  std::optional<uint32_t> last_;  // of a reference picture
};

}  // namespace flashcodec
