#include "segment_decoder.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace flashcodec {

// One call of decode(): which frames are still missing, and how decoded frames are recognised.
class SegmentDecoder::Job {
 public:
  Job(SegmentDecoder& decoder, std::span<const int64_t> wanted, FrameSink& sink)
      : decoder_(decoder), stream_(*decoder.stream_), wanted_(wanted), found_(wanted.size()), sink_(sink) {}

  void decode(const Run& run) {
    avcodec_flush_buffers(decoder_.codec_.get());
    for (int32_t packet = run.first; packet < run.last && !finished(); ++packet) {
      if (!undecodable(stream_, run, packet)) feed(packet);
    }
    if (finished()) return;
    avcodec_send_packet(decoder_.codec_.get(), nullptr);
    receive();
  }

  bool finished() const { return left() == 0 || sink_.cancelled(); }

  void check_complete() const {
    if (left() == 0 || sink_.cancelled()) return;
    const auto missing = std::find(found_.begin(), found_.end(), false) - found_.begin();
    std::string reason = "frame " + std::to_string(wanted_[missing]) + " could not be decoded";
    if (read_error_)
      throw DecodeError(read_error_->source(), read_error_->stream(), reason + ": " + read_error_->reason());
    stream_.fail(log_.explain(reason));
  }

 private:
  size_t left() const { return wanted_.size() - found_count_; }

  bool is_wanted(int32_t frame) const { return std::binary_search(wanted_.begin(), wanted_.end(), frame); }

  void feed(int32_t number) {
    AVPacket* packet = decoder_.packet_.get();
    try {
      decoder_.reader_.read(number, packet);
    } catch (const DecodeError& error) {
      read_error_ = error;  // what is decodable without this packet may still come
      return;
    }
    const int32_t frame = stream_.packets()[number].frame;
    const std::span<const uint8_t> data(packet->data, static_cast<size_t>(packet->size));
    if (stream_.ordered() && !is_wanted(frame) && disposable(data, stream_.nal_format())) return;
    packet->pts = frame >= 0 ? frame : AV_NOPTS_VALUE;
    packet->dts = AV_NOPTS_VALUE;
    // A damaged packet is no reason to stop: FFmpeg goes on, too, and the frames wanted may be intact.
    avcodec_send_packet(decoder_.codec_.get(), packet);
    receive();
  }

  void receive() {
    AVFrame* frame = decoder_.frame_.get();
    while (avcodec_receive_frame(decoder_.codec_.get(), frame) >= 0) {
      const int64_t index = stream_.ordered() ? frame->pts : counted_++;
      const auto place = std::lower_bound(wanted_.begin(), wanted_.end(), index);
      if (place == wanted_.end() || *place != index || found_[place - wanted_.begin()]) continue;
      found_[place - wanted_.begin()] = true;
      ++found_count_;
      sink_.put(index, *frame);
      if (sink_.cancelled()) return;
    }
  }

  SegmentDecoder& decoder_;
  const Bitstream& stream_;
  std::span<const int64_t> wanted_;
  std::vector<bool> found_;
  size_t found_count_ = 0;
  FrameSink& sink_;
  int64_t counted_ = 0;
  LogCapture log_;
  std::optional<DecodeError> read_error_;
};

SegmentDecoder::SegmentDecoder(BitstreamPtr stream)
    : stream_(std::move(stream)),
      reader_(*stream_),
      packet_(owned<PacketPtr>(av_packet_alloc())),
      frame_(owned<FramePtr>(av_frame_alloc())) {
  const AVCodec* decoder = avcodec_find_decoder(stream_->parameters().codec_id);
  codec_ = owned<CodecPtr>(avcodec_alloc_context3(decoder));
  if (avcodec_parameters_to_context(codec_.get(), &stream_->parameters()) < 0) throw std::bad_alloc();
  codec_->thread_count = 1;
  // A decoder that starts in the middle holds back frames it takes for incomplete. The plan has seen to it that
  // the ones wanted are not.
  if (stream_->ordered()) codec_->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
  codec_->max_pixels = stream_->limits().max_pixels;
  const LogCapture log;
  const int status = avcodec_open2(codec_.get(), decoder, nullptr);
  if (status < 0) stream_->fail(log.explain("the decoder cannot be opened: " + error_text(status)));
}

void SegmentDecoder::decode(std::span<const Run> runs, std::span<const int64_t> wanted, FrameSink& sink) {
  Job job(*this, wanted, sink);
  for (const Run& run : runs) {
    if (job.finished()) return;
    job.decode(run);
  }
  job.check_complete();
}

}  // namespace flashcodec
