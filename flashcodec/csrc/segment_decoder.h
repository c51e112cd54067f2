// Decodes runs of packets with one single-threaded decoder.
#pragma once

#include <span>

#include "bitstream.h"
#include "packet_reader.h"
#include "plan.h"

namespace flashcodec {

// Takes decoded frames; `index` is the place in presentation order.
class FrameSink {
 public:
  FrameSink() = default;
  virtual ~FrameSink() = default;
  FrameSink(const FrameSink&) = delete;
  FrameSink& operator=(const FrameSink&) = delete;

  virtual void put(int64_t index, const AVFrame& frame) = 0;
  virtual bool cancelled() const = 0;
};

class SegmentDecoder {
 public:
  // Throws DecodeError if the stream's decoder cannot be opened.
  explicit SegmentDecoder(BitstreamPtr stream);

  const BitstreamPtr& stream() const { return stream_; }

  // Gives the sink each frame of `wanted` (sorted, unique) once, in presentation order within a run, unless it
  // cancels. Throws DecodeError if one does not come out.
  void decode(std::span<const Run> runs, std::span<const int64_t> wanted, FrameSink& sink);

 private:
  class Job;

  BitstreamPtr stream_;
  CodecPtr codec_;
  PacketReader reader_;
  PacketPtr packet_;
  FramePtr frame_;
};

}  // namespace flashcodec
