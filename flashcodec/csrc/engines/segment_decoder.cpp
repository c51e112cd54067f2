#include "engines/segment_decoder.h"

#include <algorithm>
#include <utility>

#include "ffmpeg/log.h"

namespace flashcodec {

SegmentDecoder::SegmentDecoder(const Backend& backend)
    : backend_(backend), packet_(owned<PacketPtr>(av_packet_alloc())) {}

void SegmentDecoder::attach(BitstreamPtr stream, int threads) {
  const bool ready = decoder_ != nullptr && threads_ == threads;
  if (!ready || (stream != stream_ && !decoder_->fits(*stream))) {
    decoder_.reset();
    decoder_ = backend_.open(*stream, threads);
    threads_ = threads;
  }
  if (stream == stream_) return;
  reader_.emplace(stream->table());
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
  decoder_->flush();
  next_packet_ = runs_[run_].first;
  state_ = state_of_format_ = -1;
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
    const DecodedPicture* decoded = decoder_->receive();
    if (threads_ > 1 && decoder_->damaged_packets() > 0) {
      decode_run_again();
    } else if (decoded == nullptr) {
      next();
    } else {
      deliver(sink, *decoded);
      if (!complete() && !sink.cancelled() && sink.paused()) return false;
    }
  }
  return true;
}

// With one thread, which tells what packet is damaged: what it may have spoiled did not come out yet.
void SegmentDecoder::decode_run_again() {
  threads_ = 1;
  decoder_ = backend_.open(*stream_, threads_);
  counted_ = 0;  // it matters where there is one run only
  start_run();
}

// One step towards more frames.
void SegmentDecoder::next() {
  const Run& run = runs_[run_];
  for (; next_packet_ < run.last && undecodable(*stream_, run, next_packet_); ++next_packet_) after_leading_ = true;
  if (next_packet_ < run.last) {
    feed(next_packet_++);
  } else if (!draining_) {
    draining_ = true;
    decoder_->drain();
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
  const Packet& known = stream_->packets()[number];
  if (known.state != state_of_format_) format_ = stream_->format_of(number);
  state_of_format_ = known.state;
  const bool wanted = is_wanted(known.frame);
  const bool unused = disposable(bytes_of(*packet), format_);
  if (unused && !wanted && stream_->ordered()) return;
  stream_->table().prepare(number, state_, *packet);
  // A damaged packet is no reason to stop: the decoder goes on, too, and the frames wanted may be intact.
  const int damaged_before = decoder_->damaged_packets();
  decoder_->send({packet, known, wanted, fast_ && !wanted, std::exchange(after_leading_, false)});
  if (known.corrupt || decoder_->damaged_packets() > damaged_before) mark_damaged(number);
}

void SegmentDecoder::deliver(FrameSink& sink, const DecodedPicture& decoded) {
  const int64_t index = stream_->ordered() ? decoded.frame : counted_++;
  const bool bad = damaged(decoded, index);
  const auto place = std::lower_bound(wanted_.begin(), wanted_.end(), index);
  if (place == wanted_.end() || *place != index || found_[place - wanted_.begin()]) return;
  found_[place - wanted_.begin()] = true;
  ++found_count_;
  sink.put(index, decoded.picture, bad);
}

// What is decoded after a damaged packet may refer to it, as far as first_gop_needed() tells.
void SegmentDecoder::mark_damaged(int32_t packet) {
  const auto [known, added] = first_damaged_.emplace(stream_->gop_of(packet), packet);
  if (!added) known->second = std::min(known->second, packet);
}

bool SegmentDecoder::damaged(const DecodedPicture& decoded, int64_t index) {
  if (index < 0 || index >= static_cast<int64_t>(stream_->frames().size())) return decoded.damaged;
  const int32_t packet = stream_->frames()[static_cast<size_t>(index)];
  if (decoded.damaged) mark_damaged(packet);
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
