// What is known of a video stream without decoding it: packets, frames in presentation order, GOPs.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "bitstream/doubt.h"
#include "bitstream/frame_order.h"
#include "bitstream/metadata.h"
#include "bitstream/packets.h"
#include "codecs/coded_format.h"
#include "ffmpeg/packet.h"
#include "pixels/orientation.h"
#include "source/source.h"

struct AVStream;

namespace flashcodec {

class Input;

// Packets [first_packet, last_packet) in decoding order, from one key packet up to the next; their frames lie
// in [first_frame, last_frame), a range that overlaps the neighbours' in open GOPs.
struct Gop {
  int32_t first_packet;
  int32_t last_packet;
  int32_t first_frame;
  int32_t last_frame;
};

class Bitstream {
 public:
  // Analyses the stream: MP4/MOV from the sample tables, other containers by a scan of their packets.
  Bitstream(SourcePtr source, int stream_index, const Limits& limits);

  const PacketTable& table() const { return table_; }
  const SourcePtr& source() const { return table_.source; }
  const Limits& limits() const { return table_.limits; }
  int stream_index() const { return table_.stream_index; }
  const AVCodecParameters& parameters() const { return *parameters_; }
  const Metadata& metadata() const { return metadata_; }
  // How to read the headers of a packet and of those behind it.
  const CodedFormat& format_of(int32_t packet) const { return formats_[table_.packets[packet].state]; }
  Orientation orientation() const { return orientation_; }

  const std::vector<Packet>& packets() const { return table_.packets; }
  const std::vector<int32_t>& frames() const { return frames_; }  // packet of each frame
  const std::vector<Gop>& gops() const { return gops_; }
  int gop_of(int32_t packet) const;
  double seconds(int64_t timestamp) const { return static_cast<double>(timestamp) * time_base_.num / time_base_.den; }
  int64_t frame_pts(int32_t frame) const { return frame_pts_[frame]; }
  int64_t frame_duration(int32_t frame) const;
  int64_t end_pts() const;  // when the last frame goes off

  bool contiguous() const { return table_.contiguous; }
  // There were no tables to tell where the packets are: all of the source was read to find them.
  bool scanned() const { return scanned_; }
  // It is known which packet a decoded frame comes from. If not, frames are counted from the first packet.
  bool ordered() const { return ordered_; }
  // Shown before the key frame of its GOP, so it may need frames of the GOP before.
  bool leading(int32_t packet) const;
  // Decoding may start at this GOP: its key packet has been looked at.
  bool starts_clean(int gop) const;
  // What of the container is not believed, because the packets contradict it.
  const std::vector<Doubt>& doubts() const { return doubts_; }

  [[noreturn]] void fail(const std::string& reason, ErrorKind kind = ErrorKind::kDamaged) const {
    table_.fail(reason, kind);
  }

 private:
  void read_parameters(const Input& input);
  void check_decodable(const AVStream& stream) const;
  void check_decoder_opens() const;
  void read_packets(Input& input, Deadline deadline);
  void check_count(int64_t packets) const;
  OrderEvidence list_packets(Input& input);
  void order_frames(bool may_be_set_back, OrderEvidence evidence, Deadline deadline);
  void find_gops();
  Start start_at(int32_t packet) const;
  int64_t guess_last_duration(const AVStream& stream) const;

  PacketTable table_;
  ParametersPtr parameters_;
  AVRational time_base_{0, 1};
  Metadata metadata_;
  std::vector<CodedFormat> formats_;  // by the number of the decoder's state
  Orientation orientation_;
  std::vector<int32_t> frames_;
  std::vector<int64_t> frame_pts_;
  int64_t last_duration_ = 0;  // of the last frame if its packet tells none
  std::vector<Gop> gops_;
  std::vector<Doubt> doubts_;
  bool ordered_ = true;
  bool scanned_ = false;                            // the packets' bytes have been seen
  mutable std::vector<std::atomic<int8_t>> clean_;  // 0 unknown, 1 yes, -1 no
};

using BitstreamPtr = std::shared_ptr<const Bitstream>;

}  // namespace flashcodec
