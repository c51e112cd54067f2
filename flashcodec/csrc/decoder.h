// An opened FFmpeg decoder.
#pragma once

#include "bitstream.h"

namespace flashcodec {

// Opening a decoder and its first pictures cost more than many a frame, so one is kept for all streams that it fits.
class Decoder {
 public:
  // `threads` > 1: frame threads, for pictures that no other engine could decode meanwhile. Throws DecodeError if it
  // cannot be opened.
  Decoder(const Bitstream& stream, int threads);

  AVCodecContext* context() const { return context_.get(); }

  int threads() const { return threads_; }
  // After a flush it decodes this other stream as a new decoder would.
  bool fits(const Bitstream& stream) const;

  // What the pictures of such a decoder take, bytes, about.
  static int64_t memory(const Bitstream& stream);

 private:
  int threads_;
  bool ordered_;
  bool private_;  // parameters may have come in its packets, so it fits no other stream
  int64_t max_pixels_;
  ParametersPtr parameters_;
  CodecPtr context_;
};

}  // namespace flashcodec
