// The packets of a stream, and where their bytes are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  int32_t frame;  // its place in presentation order, -1 if it is none
  int32_t order;  // the same among all packets, those of frames that are hidden, too
  bool key;
  bool discard;  // an edit list hides its frame
  bool shown;    // a frame comes out for it: it is not only referred to
  bool gradual;  // a key packet that was seen to be a recovery point in the middle of an intra refresh

  bool is_frame() const { return shown && !discard; }
};

// What must be known of a stream to read its packets.
struct PacketTable {
  SourcePtr source;
  Limits limits;
  int stream_index = -1;
  std::vector<Packet> packets{};
  // A packet is its bytes [position, position + size) of the source, so that no demuxer is needed to read it.
  bool contiguous = false;

  // Throw a DecodeError about this stream.
  [[noreturn]] void fail(const std::string& reason, ErrorKind kind, int64_t position = -1) const {
    throw DecodeError(source->name(), stream_index, reason, kind, position);
  }
};

}  // namespace flashcodec
