// What the headers of packets tell, whatever their codec: what can be left out, where decoding may start, what is
// shown.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "codecs/av1.h"
#include "codecs/nal.h"
#include "codecs/picture_types.h"
#include "codecs/start.h"
#include "ffmpeg/packet.h"

namespace flashcodec {

// What must be known of a stream to read the headers of its packets: first what its configuration says, then what
// disposable() has seen in the packets before.
struct CodedFormat {
  AVCodecID codec = AV_CODEC_ID_NONE;  // NONE: no packet can be left out
  bool intra_only = false;             // decoding may start at any packet
  bool in_order = false;               // pictures are shown as they are decoded
  NalFormat nal;                       // H.264, HEVC
  std::optional<Av1Sequence> av1;
  std::optional<Wmv3Format> wmv3;
  bool interlaced = true;    // MPEG-4
  bool independent = false;  // VP8, VP9: all frames are (VpxFrame), as a scan has shown

  static CodedFormat of(const AVCodecParameters& parameters);
};

// The packet can be left out if its frame is not wanted: no other frame comes out differently, bit for bit. To be
// asked of each packet that follows a key packet, in order, as headers in one packet hold for the next ones.
bool disposable(std::span<const uint8_t> packet, CodedFormat& format);

// Whether pictures of this codec are shown in the order in which they are decoded.
bool never_reorders(AVCodecID codec);

// Whether decoding may start at the packet.
Start start_of(std::span<const uint8_t> packet, CodedFormat format);

// How many pictures come out for the packet; 1 where its codec has one a packet. To be asked of all packets in order,
// as disposable().
int pictures_shown(std::span<const uint8_t> packet, CodedFormat& format);

// VP8, VP9: whether the packet's frames are independent of others in the sense of VpxFrame.
bool independent(std::span<const uint8_t> packet, const CodedFormat& format);

}  // namespace flashcodec
