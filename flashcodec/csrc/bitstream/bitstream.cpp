#include "bitstream/bitstream.h"

#include <algorithm>
#include <array>
#include <utility>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/common.h>
}

#include "bitstream/frame_order.h"
#include "bitstream/key_flags.h"
#include "bitstream/packet_reader.h"
#include "bitstream/packet_scan.h"
#include "bitstream/table_check.h"
#include "ffmpeg/decoding.h"
#include "ffmpeg/log.h"
#include "source/input.h"

namespace flashcodec {

namespace {

// Codecs of which MP4/MOV keep one whole picture a sample, as the decoder wants it.
bool one_sample_one_packet(const AVCodecParameters& parameters) {
  // Interlaced, so that fields may be samples of their own.
  if (parameters.codec_id == AV_CODEC_ID_H264 && parameters.field_order != AV_FIELD_PROGRESSIVE) return false;
  constexpr std::array codecs{AV_CODEC_ID_H264,   AV_CODEC_ID_HEVC,  AV_CODEC_ID_VP8,
                              AV_CODEC_ID_VP9,    AV_CODEC_ID_AV1,   AV_CODEC_ID_MJPEG,
                              AV_CODEC_ID_PRORES, AV_CODEC_ID_MPEG4, AV_CODEC_ID_H263};
  return std::find(codecs.begin(), codecs.end(), parameters.codec_id) != codecs.end();
}

}  // namespace

Bitstream::Bitstream(SourcePtr source, int stream_index, const Limits& limits)
    : table_{.source = std::move(source), .limits = limits} {
  const Deadline deadline(table_.limits.max_analysis_seconds);
  Input input(table_.source, stream_index, table_.limits, deadline);
  read_parameters(input);
  read_packets(input, deadline);
  find_gops();
}

void Bitstream::read_parameters(const Input& input) {
  const AVStream& stream = *input.stream();
  table_.stream_index = input.stream_index();
  parameters_ = owned<ParametersPtr>(avcodec_parameters_alloc());
  if (avcodec_parameters_copy(parameters_.get(), stream.codecpar) < 0) throw std::bad_alloc();
  check_decodable(stream);
  time_base_ = stream.time_base;
  metadata_ = metadata_of(stream);
  orientation_ = orientation_of(stream);
}

void Bitstream::check_decodable(const AVStream& stream) const {
  const AVCodecParameters& codec = *parameters_;
  if (is_encrypted(stream)) fail("the stream is encrypted: decrypt it first", ErrorKind::kUnsupported);
  if (codec.codec_id == AV_CODEC_ID_NONE) {
    if (codec.codec_tag == 0) fail("the container does not tell the codec: it may be cut off", ErrorKind::kUnsupported);
    std::array<char, AV_FOURCC_MAX_STRING_SIZE> tag{};
    av_fourcc_make_string(tag.data(), codec.codec_tag);
    fail("codec " + std::string(tag.data()) + " is unknown to this FFmpeg", ErrorKind::kUnsupported);
  }
  if (avcodec_find_decoder(codec.codec_id) == nullptr) {
    fail(std::string("this FFmpeg has no decoder for ") + avcodec_get_name(codec.codec_id), ErrorKind::kUnsupported);
  }
  const bool sized = codec.width > 0 && codec.height > 0;
  if (!sized && codec.codec_id == AV_CODEC_ID_WEBP) {
    fail("an animated WebP, which this FFmpeg cannot decode: convert it to a video", ErrorKind::kUnsupported);
  }
  if (!sized) fail("the picture size is unknown: no decodable frame was found");
  if (codec.format == AV_PIX_FMT_NONE) check_decoder_opens();
  if (int64_t{codec.width} * codec.height > table_.limits.max_pixels) {
    fail("pictures of " + std::to_string(codec.width) + "x" + std::to_string(codec.height) + " are over the limit of " +
             std::to_string(table_.limits.max_pixels) + " pixels (max_pixels)",
         ErrorKind::kLimit);
  }
}

// FFmpeg finds out the pixel format with the decoder, so none may mean that there is no decoder for these parameters.
void Bitstream::check_decoder_opens() const {
  const AVCodec* codec = avcodec_find_decoder(parameters_->codec_id);
  const auto context = owned<CodecPtr>(avcodec_alloc_context3(codec));
  if (avcodec_parameters_to_context(context.get(), parameters_.get()) < 0) throw std::bad_alloc();
  context->max_pixels = table_.limits.max_pixels;
  const LogCapture log;
  const int status = avcodec_open2(context.get(), codec, nullptr);
  if (status >= 0) return;
  const std::string what = std::string("the decoder of ") + avcodec_get_name(parameters_->codec_id);
  fail(log.explain(what + " does not take this stream: " + error_text(status)), ErrorKind::kUnsupported);
}

void Bitstream::read_packets(Input& input, Deadline deadline) {
  check_count(avformat_index_get_entries_count(input.stream()));
  const bool mov = is_mov(*input.format());
  table_.contiguous = mov && one_sample_one_packet(*parameters_);
  scanned_ = !table_.contiguous;
  const LogCapture log;
  const std::unique_ptr<Input> tables =
      table_.contiguous ? Input::tables_only(table_.source, *input.stream(), table_.limits, deadline) : nullptr;
  OrderEvidence evidence = list_packets(tables != nullptr ? *tables : input);
  if (tables != nullptr && !table_.packets.empty() && !tables_hold(table_, *parameters_)) {
    scanned_ = true;
    evidence = list_packets(input);
  }
  if (table_.packets.empty()) fail(log.explain("the stream has no frames: it may be cut off"));
  order_frames(!mov, std::move(evidence), deadline);
  if (frames_.empty()) fail(log.explain("the stream has no frames that are shown"));
  last_duration_ = guess_last_duration(*input.stream());
}

void Bitstream::check_count(int64_t packets) const {
  if (packets <= table_.limits.max_packets) return;
  fail("the stream has more than " + std::to_string(table_.limits.max_packets) + " packets, the limit (max_frames)",
       ErrorKind::kLimit);
}

OrderEvidence Bitstream::list_packets(Input& input) {
  const auto packet = owned<PacketPtr>(av_packet_alloc());
  PacketScan scan(table_, *parameters_, scanned_);
  while (input.read(packet.get())) {
    check_count(static_cast<int64_t>(table_.packets.size()) + 1);
    if (packet->size > 0) {
      scan.add(*packet);
    } else if (table_.contiguous) {
      scan.add_gap();
    }
  }
  OrderEvidence evidence = scan.finish();
  formats_ = scan.take_formats();
  return evidence;
}

void Bitstream::order_frames(bool may_be_set_back, OrderEvidence evidence, Deadline deadline) {
  constexpr double kTolerance = 0.1;  // of decoding times that go back, seconds: as FFmpeg's command line tool has it
  const AVCodecID codec = parameters_->codec_id;
  if (scanned_) {
    if (std::optional<Doubt> doubt = settle_key_flags(table_.packets, metadata_.codec)) doubts_.push_back(*doubt);
  } else {
    table_.packets.front().start = start_at(0);
  }
  const TimeKeeping keeping{.may_be_set_back = may_be_set_back,
                            .b_pictures_timed = codec == AV_CODEC_ID_MPEG1VIDEO || codec == AV_CODEC_ID_MPEG2VIDEO ||
                                                (codec == AV_CODEC_ID_MPEG4 && evidence.complete()),
                            .tolerance = static_cast<int64_t>(kTolerance / av_q2d(time_base_))};
  FrameOrder order(table_, *parameters_, read_clock(table_.packets, keeping), std::move(evidence), deadline);
  ordered_ = order.ordered();
  frames_ = order.take_frames();
  frame_pts_ = order.take_pts();
  doubts_.insert(doubts_.end(), order.doubts().begin(), order.doubts().end());
}

void Bitstream::find_gops() {
  const auto count = static_cast<int32_t>(table_.packets.size());
  for (int32_t i = 0; i < count; ++i) {
    if (gops_.empty() || table_.packets[i].key) gops_.push_back({i, i, INT32_MAX, 0});
    Gop& gop = gops_.back();
    gop.last_packet = i + 1;
    if (table_.packets[i].frame < 0) continue;
    gop.first_frame = std::min(gop.first_frame, table_.packets[i].frame);
    gop.last_frame = std::max(gop.last_frame, table_.packets[i].frame + 1);
  }
  for (Gop& gop : gops_) gop.first_frame = std::min(gop.first_frame, gop.last_frame);
  clean_ = std::vector<std::atomic<int8_t>>(gops_.size());
}

int Bitstream::gop_of(int32_t packet) const {
  const auto after = std::upper_bound(gops_.begin(), gops_.end(), packet,
                                      [](int32_t p, const Gop& gop) { return p < gop.first_packet; });
  return static_cast<int>(after - gops_.begin()) - 1;
}

int64_t Bitstream::frame_duration(int32_t frame) const {
  const int64_t duration = table_.packets[frames_[frame]].duration;
  if (duration > 0) return duration;
  const bool last = frame + 1 == static_cast<int32_t>(frames_.size());
  return last ? last_duration_ : av_sat_sub64(frame_pts_[frame + 1], frame_pts_[frame]);
}

// A last frame without a duration would never be on show: it gets that of the others, or all that the container tells
// of. Where nothing is known, FFmpeg assumes 25 frames a second.
int64_t Bitstream::guess_last_duration(const AVStream& stream) const {
  constexpr AVRational kAssumedRate{25, 1};
  const auto one_frame = [&](AVRational rate) {
    return std::max<int64_t>(av_rescale_q(1, av_inv_q(rate), stream.time_base), 1);
  };
  if (stream.avg_frame_rate.num > 0 && stream.avg_frame_rate.den > 0) return one_frame(stream.avg_frame_rate);
  const size_t count = frame_pts_.size();
  const int64_t guess = count > 1 ? av_sat_sub64(frame_pts_[count - 1], frame_pts_[count - 2]) : stream.duration;
  return guess > 0 ? guess : one_frame(kAssumedRate);
}

int64_t Bitstream::end_pts() const {
  int64_t end = INT64_MIN;
  for (int32_t i = 0; i < static_cast<int32_t>(frames_.size()); ++i) {
    end = std::max(end, av_sat_add64(frame_pts_[i], frame_duration(i)));
  }
  return end;
}

bool Bitstream::leading(int32_t packet) const {
  return table_.packets[packet].order < table_.packets[gops_[gop_of(packet)].first_packet].order;
}

bool Bitstream::starts_clean(int gop) const {
  const int32_t first = gops_[gop].first_packet;
  if (gop == 0) return true;
  if (scanned_) return starts(table_.packets[first].start);
  int8_t known = clean_[gop].load(std::memory_order_relaxed);
  if (known == 0) {
    try {
      known = starts(start_at(first)) ? 1 : -1;
    } catch (const DecodeError&) {
      return true;  // it will not be decoded either: that tells which frames are concerned
    }
    clean_[gop].store(known, std::memory_order_relaxed);
  }
  return known > 0;
}

// Throws DecodeError if a packet cannot be read.
Start Bitstream::start_at(int32_t packet) const {
  if (start_of({}, format_of(packet)) == Start::kYes) return Start::kYes;  // of any packet of this codec
  const auto read = owned<PacketPtr>(av_packet_alloc());
  PacketReader(table_).read(packet, read.get());
  return start_of(bytes_of(*read), format_of(packet));
}

}  // namespace flashcodec
