#include "segment_decoder.h"

#include <algorithm>
#include <utility>

namespace flashcodec {

SegmentDecoder::SegmentDecoder()
    : packet_(owned<PacketPtr>(av_packet_alloc())), frame_(owned<FramePtr>(av_frame_alloc())) {}

void SegmentDecoder::attach(BitstreamPtr stream, int threads) {
  const bool ready = decoder_ != nullptr && decoder_->threads() == threads;
  if (!ready || (stream != stream_ && !decoder_->fits(*stream))) {
    decoder_.reset();
    decoder_ = std::make_unique<Decoder>(*stream, threads);
  }
  if (stream == stream_) return;
  reader_.emplace(*stream);
  stream_ = std::move(stream);
}

void SegmentDecoder::begin(std::vector<Run> runs, std::vector<int64_t> wanted, bool fast) {
  runs_ = std::move(runs);
  wanted_ = std::move(wanted);
  found_.assign(wanted_.size(), false);
  found_count_ = 0;
  fast_ = fast;
  counted_ = 0;
  first_damaged_.clear();
  read_error_.reset();
  log_.clear();
  run_ = 0;
  start_run();
}

void SegmentDecoder::start_run() {
  if (run_ == runs_.size()) return;
  avcodec_flush_buffers(decoder_->context());
  format_ = stream_->format();
  next_packet_ = runs_[run_].first;
  draining_ = false;
}

bool SegmentDecoder::advance(FrameSink& sink) {
  const LogCapture log;
  const bool finished = work(sink);
  if (!log.last_error().empty()) log_ = log.last_error();
  return finished;
}

bool SegmentDecoder::work(FrameSink& sink) {
  while (!complete() && run_ < runs_.size() && !sink.cancelled()) {
    while (avcodec_receive_frame(decoder_->context(), frame_.get()) >= 0) {
      deliver(sink);
      if (complete() || sink.cancelled()) break;
      if (sink.paused()) return false;
    }
    if (!complete()) next();
  }
  return true;
}

// One step towards more frames.
void SegmentDecoder::next() {
  const Run& run = runs_[run_];
  while (next_packet_ < run.last && undecodable(*stream_, run, next_packet_)) ++next_packet_;
  if (next_packet_ < run.last) {
    feed(next_packet_++);
  } else if (!draining_) {
    draining_ = true;
    avcodec_send_packet(decoder_->context(), nullptr);
  } else {
    ++run_;
    start_run();
  }
}

bool SegmentDecoder::is_wanted(int32_t frame) const {
  return std::binary_search(wanted_.begin(), wanted_.end(), frame);
}

void SegmentDecoder::feed(int32_t number) {
  AVPacket* packet = packet_.get();
  try {
    reader_->read(number, packet);
  } catch (const DecodeError& error) {
    read_error_ = error;  // what is decodable without this packet may still come
    mark_damaged(number);
    return;
  }
  const int32_t frame = stream_->packets()[number].frame;
  const bool wanted = is_wanted(frame);
  const bool unused = disposable(bytes_of(*packet), format_);
  if (unused && !wanted && stream_->ordered()) return;
  packet->pts = frame >= 0 ? frame : AV_NOPTS_VALUE;
  packet->dts = AV_NOPTS_VALUE;
  decoder_->context()->skip_loop_filter = fast_ && !wanted ? AVDISCARD_ALL : AVDISCARD_DEFAULT;
  // A damaged packet is no reason to stop: FFmpeg goes on, too, and the frames wanted may be intact.
  if (avcodec_send_packet(decoder_->context(), packet) < 0) mark_damaged(number);
}

void SegmentDecoder::deliver(FrameSink& sink) {
  const int64_t index = stream_->ordered() ? frame_->pts : counted_++;
  const bool bad = damaged(*frame_, index);
  const auto place = std::lower_bound(wanted_.begin(), wanted_.end(), index);
  if (place == wanted_.end() || *place != index || found_[place - wanted_.begin()]) return;
  found_[place - wanted_.begin()] = true;
  ++found_count_;
  sink.put(index, *frame_, bad);
}

// What is decoded after a damaged packet may refer to it, as far as first_gop_needed() tells.
void SegmentDecoder::mark_damaged(int32_t packet) {
  const auto [known, added] = first_damaged_.emplace(stream_->gop_of(packet), packet);
  if (!added) known->second = std::min(known->second, packet);
}

bool SegmentDecoder::damaged(const AVFrame& frame, int64_t index) {
  if (index < 0 || index >= static_cast<int64_t>(stream_->frames().size())) return frame.decode_error_flags != 0;
  const int32_t packet = stream_->frames()[static_cast<size_t>(index)];
  if (frame.decode_error_flags != 0) mark_damaged(packet);
  if (first_damaged_.empty()) return false;
  for (int gop = first_gop_needed(*stream_, packet); gop <= stream_->gop_of(packet); ++gop) {
    const auto known = first_damaged_.find(gop);
    if (known != first_damaged_.end() && known->second <= packet) return true;
  }
  return false;
}

std::vector<int64_t> SegmentDecoder::missing() const {
  std::vector<int64_t> frames;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    if (!found_[i]) frames.push_back(wanted_[i]);
  }
  return frames;
}

DecodeError SegmentDecoder::why_missing(int64_t frame) const {
  std::string reason = "frame " + std::to_string(frame) + " could not be decoded";
  if (read_error_) {
    reason += ": " + read_error_->reason();
  } else if (!log_.empty()) {
    reason += " (" + log_ + ")";
  }
  return {stream_->source()->name(), stream_->stream_index(), reason, ErrorKind::kDamaged, frame};
}

}  // namespace flashcodec
