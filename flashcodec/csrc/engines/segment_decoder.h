// Decodes runs of packets with one decoder, with pauses where the taker of the frames asks for them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "bitstream/bitstream.h"
#include "bitstream/packet_reader.h"
#include "engines/backend.h"
#include "plan/plan.h"

namespace flashcodec {

// Taker of decoded frames; `index` is the place in presentation order. `damaged`: something went wrong in decoding it
// or a picture it may refer to.
class FrameSink {
 public:
  FrameSink() = default;
  virtual ~FrameSink() = default;
  FrameSink(const FrameSink&) = delete;
  FrameSink& operator=(const FrameSink&) = delete;

  virtual void put(int64_t index, const Picture& picture, bool damaged) = 0;
  virtual bool cancelled() const = 0;
  virtual bool paused() const = 0;
};

// Decoder of one segment after another, by a backend; kept by an engine, and by a job that pauses.
class SegmentDecoder {
 public:
  explicit SegmentDecoder(const Backend& backend);

  const Backend& backend() const { return backend_; }

  // Prepare for segments of this stream, keeping the decoder if it fits. Throws DecodeError if one cannot be opened.
  void attach(BitstreamPtr stream, int threads);

  // Begin a segment. `wanted` is sorted and unique. `fast`: leave out the loop filter where no wanted frame is
  // concerned itself, which changes the pictures that refer to such a frame a little.
  void begin(std::vector<Run> runs, std::vector<int64_t> wanted, bool fast);

  // Give the sink each wanted frame once, in presentation order within a run. Return false when the sink wants a
  // pause: to be called again; true when nothing more comes.
  bool advance(FrameSink& sink);

  // Return, after the end, the wanted frames that did not come out, and why the first of them did not.
  std::vector<int64_t> missing() const;
  DecodeError why_missing(int64_t frame) const;

 private:
  bool work(FrameSink& sink);
  bool complete() const { return found_count_ == wanted_.size(); }
  bool is_wanted(int32_t frame) const;
  void start_run();
  void decode_run_again();
  void next();
  void feed(int32_t number);
  void deliver(FrameSink& sink, const DecodedPicture& decoded);
  void mark_damaged(int32_t packet);
  bool damaged(const DecodedPicture& decoded, int64_t index);

  const Backend& backend_;
  BitstreamPtr stream_;
  std::optional<PacketReader> reader_;
  std::unique_ptr<PictureDecoder> decoder_;
  int threads_ = 0;  // that the decoder was opened with
  PacketPtr packet_;

  std::vector<Run> runs_;
  std::vector<int64_t> wanted_;
  std::vector<bool> found_;
  size_t found_count_ = 0;
  bool fast_ = false;
  size_t run_ = 0;
  CodedFormat format_;            // as the packets of the run have said so far
  int32_t state_of_format_ = -1;  // the number of the decoder's state
  int32_t state_ = -1;            // that the decoder has been told in this run
  int32_t next_packet_ = 0;
  bool after_leading_ = false;  // since the packet that was sent last
  bool draining_ = false;
  int64_t counted_ = 0;                             // frames so far, where timestamps do not tell them apart
  std::unordered_map<int, int32_t> first_damaged_;  // packet, by GOP
  std::optional<DecodeError> read_error_;
  std::string log_;
};

}  // namespace flashcodec
