// Lists the packets of a stream, and what they say themselves where their bytes are read.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "bitstream/frame_order.h"
#include "bitstream/packets.h"
#include "bitstream/picture_order.h"
#include "codecs/coded_format.h"
#include "codecs/frame_numbers.h"
#include "codecs/vop_clock.h"
#include "ffmpeg/packet.h"

namespace flashcodec {

class Input;

class PacketScan {
 public:
  // `with_bytes`: the packets' bytes are there, not only the container's tables.
  PacketScan(PacketTable& table, const AVCodecParameters& parameters, bool with_bytes);

  // Take a packet into the table. Throws DecodeError if it is encrypted.
  void add(const AVPacket& packet);
  // Note that a sample is empty: a picture may be missing.
  void add_gap() { gap_ = true; }
  // Return what is known after the last packet.
  OrderEvidence finish();
  // How to read the headers of packets, by the number of the decoder's state.
  std::vector<CodedFormat> take_formats() { return std::move(formats_); }

 private:
  bool skips_time(const AVPacket& packet) const;
  bool note_state(const AVPacket& packet);
  void configure(std::span<const uint8_t> configuration);
  bool note_layer(std::span<const uint8_t> packet);
  void keep_first_configuration();

  PacketTable& table_;
  const AVCodecParameters& parameters_;
  bool with_bytes_;
  bool independent_;
  std::vector<CodedFormat> formats_;
  std::map<DecoderState, int32_t> states_;  // their numbers: a stream may go to and fro between two
  int32_t state_ = 0;
  CodedFormat headers_;  // as the packets have said so far
  PictureOrder order_;
  std::optional<FrameNumbers> numbers_;  // H.264
  std::optional<VopClock> vops_;         // MPEG-4
  OrderEvidence evidence_;
  std::vector<uint8_t> layer_;  // MPEG: what packets have said of the pictures
  bool gap_ = false;            // before the next packet
};

}  // namespace flashcodec
