// The packets of a stream, and where their bytes are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitstream/decoder_state.h"
#include "codecs/start.h"
#include "source/decode_error.h"
#include "source/source.h"
#include "source/source_limits.h"

namespace flashcodec {

struct Packet {
  int64_t pts;  // AV_NOPTS_VALUE if the container has none
  int64_t dts;
  int64_t duration;
  int64_t position;  // in the source, -1 if unknown
  int32_t size;
  int32_t state;      // of the decoder before it, by number
  bool key;           // the container says so, until analysis has looked at the packet
  bool discard;       // an edit list hides its frame
  bool corrupt;       // the container says that bytes are missing
  bool shown = true;  // a frame comes out for it: it is not only referred to
  bool torn = false;  // its picture may refer to one that is not there
  Start start = Start::kUnknown;
  int32_t frame = -1;  // its place in presentation order, -1 if it is none
  int32_t order = -1;  // the same among all packets, those of frames that are hidden, too

  bool is_frame() const { return shown && !discard; }
};

// What must be known of a stream to read its packets.
struct PacketTable {
  SourcePtr source;
  Limits limits;
  int stream_index = -1;
  std::vector<Packet> packets{};
  std::vector<DecoderState> states{1};
  // A packet is its bytes [position, position + size) of the source, so that no demuxer is needed to read it.
  bool contiguous = false;

  // Make a packet that is to be decoded carry what its decoder lacks; `state` is the number of what it has.
  void prepare(int32_t index, int32_t& state, AVPacket& packet) const {
    if (states.size() == 1) return;
    av_packet_free_side_data(&packet);
    if (packets[index].state != state) carry(states[packets[index].state], packet);
    state = packets[index].state;
  }

  // Throw a DecodeError about this stream.
  [[noreturn]] void fail(const std::string& reason, ErrorKind kind, int64_t position = -1) const {
    throw DecodeError(source->name(), stream_index, reason, kind, position);
  }
};

}  // namespace flashcodec
