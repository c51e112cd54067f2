// One packet a frame, where demuxers give one a field.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "ffmpeg/packet.h"
#include "ffmpeg/picture_parser.h"

namespace flashcodec {

// Joins the packets of two H.264 fields that make up a frame (a complementary field pair, 3.30): transport streams and
// bare streams are cut into pictures, and a field is one.
class FieldJoiner {
 public:
  using Next = std::function<bool(AVPacket*)>;

  explicit FieldJoiner(const AVCodecParameters& parameters);

  // The next whole frame, from packets that next() gives until it returns false.
  bool read(const Next& next, AVPacket* packet);

  // Forgets what was read ahead, after a seek.
  void reset() { av_packet_unref(ahead_.get()); }

 private:
  bool take(const Next& next);
  void inspect();

  ParametersPtr parameters_;
  std::optional<PictureParser> parser_;
  PacketPtr ahead_;  // read, but not given out yet
  bool field_ = false;
  bool second_ = false;  // a field of the same frame as the picture before, and of the other parity
};

}  // namespace flashcodec
