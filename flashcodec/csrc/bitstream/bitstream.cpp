#include "bitstream/bitstream.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/common.h>
#include <libavutil/display.h>
#include <libavutil/pixdesc.h>
}

#include "bitstream/packet_reader.h"
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

// Where frames that are not shown have samples of their own, which MP4 forbids, their times are next to those of
// others.
bool may_hide_frames(const AVCodecParameters& parameters, std::span<const Packet> packets) {
  constexpr int64_t kMuchShorter = 8;  // than the average
  constexpr std::array codecs{AV_CODEC_ID_VP8, AV_CODEC_ID_VP9, AV_CODEC_ID_AV1};
  if (std::ranges::find(codecs, parameters.codec_id) == codecs.end() || packets.size() < 2) return false;
  const auto steps = static_cast<int64_t>(packets.size() - 1);
  const int64_t average = av_sat_sub64(packets.back().dts, packets.front().dts) / steps;
  return std::ranges::adjacent_find(packets, [&](const Packet& a, const Packet& b) {
           return av_sat_sub64(b.dts, a.dts) < average / kMuchShorter;
         }) != packets.end();
}

const uint8_t* side_data(const AVStream* stream, AVPacketSideDataType type) {
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 100)
  const AVPacketSideData* data =
      av_packet_side_data_get(stream->codecpar->coded_side_data, stream->codecpar->nb_coded_side_data, type);
  return data == nullptr ? nullptr : data->data;
#else
  return av_stream_get_side_data(stream, type, nullptr);
#endif
}

bool is_encrypted(const AVStream& stream) {
  return stream.codecpar->codec_tag == MKTAG('e', 'n', 'c', 'v') ||
         side_data(&stream, AV_PKT_DATA_ENCRYPTION_INIT_INFO) != nullptr ||
         av_dict_get(stream.metadata, "enc_key_id", nullptr, 0) != nullptr;  // Matroska
}

// FFmpeg gives B pictures the time at which they are decoded, and often leaves others without: they are shown when
// the next of them is decoded. Nothing is inferred if that does not give every picture a time of its own.
void infer_pts(std::vector<Packet>& packets) {
  const auto unknown = [](const Packet& p) { return p.pts == AV_NOPTS_VALUE; };
  if (std::none_of(packets.begin(), packets.end(), unknown)) return;
  if (std::any_of(packets.begin(), packets.end(), [](const Packet& p) { return p.dts == AV_NOPTS_VALUE; })) return;
  std::vector<int64_t> times(packets.size());
  int64_t next_dts = packets.back().dts + std::max<int64_t>(packets.back().duration, 1);
  for (size_t i = packets.size(); i-- > 0;) {
    times[i] = unknown(packets[i]) ? next_dts : packets[i].pts;
    if (packets[i].pts != packets[i].dts) next_dts = packets[i].dts;
  }
  std::vector<int64_t> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return;
  for (size_t i = 0; i < packets.size(); ++i) packets[i].pts = times[i];
}

using DisplayMatrix = std::array<int32_t, 9>;

std::optional<DisplayMatrix> display_matrix(const AVStream* stream) {
  const uint8_t* bytes = side_data(stream, AV_PKT_DATA_DISPLAYMATRIX);
  if (bytes == nullptr) return std::nullopt;
  DisplayMatrix matrix;
  std::memcpy(matrix.data(), bytes, sizeof(matrix));
  return matrix;
}

// In degrees, anticlockwise, as FFmpeg and TorchCodec tell it also of a matrix that mirrors.
std::optional<double> rotation_of(const DisplayMatrix& matrix) {
  const double degrees = av_display_rotation_get(matrix.data());
  if (std::isnan(degrees)) return std::nullopt;
  return degrees;
}

// A matrix that mirrors has a negative determinant: with its first row negated it is the turn that follows.
Orientation orientation_of(DisplayMatrix matrix) {
  const auto product = [&](int i, int j) { return static_cast<double>(matrix[i]) * matrix[j]; };
  const bool mirrored = product(0, 4) < product(1, 3);
  for (int i = 0; mirrored && i < 2; ++i) matrix[i] = -std::max(matrix[i], -INT32_MAX);
  const double degrees = rotation_of(matrix).value_or(0);
  return {.quarter_turns = (4 - static_cast<int>(std::lround(degrees / 90))) % 4, .mirrored = mirrored};
}

std::optional<std::string> name_or_none(const char* name) {
  if (name == nullptr) return std::nullopt;
  return name;
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
  format_ = CodedFormat::of(*parameters_);
  read_metadata(stream);
}

void Bitstream::check_decodable(const AVStream& stream) const {
  const AVCodecParameters& codec = *parameters_;
  if (is_encrypted(stream)) fail("the stream is encrypted: decrypt it first", ErrorKind::kUnsupported);
  if (codec.codec_id == AV_CODEC_ID_NONE) {
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
  if (int64_t{codec.width} * codec.height > table_.limits.max_pixels) {
    fail("pictures of " + std::to_string(codec.width) + "x" + std::to_string(codec.height) + " are over the limit of " +
             std::to_string(table_.limits.max_pixels) + " pixels (max_pixels)",
         ErrorKind::kLimit);
  }
}

void Bitstream::read_metadata(const AVStream& stream) {
  const AVCodecParameters& codec = *parameters_;
  metadata_.codec = avcodec_get_name(codec.codec_id);
  if (const std::optional<DisplayMatrix> matrix = display_matrix(&stream)) {
    metadata_.rotation = rotation_of(*matrix);
    orientation_ = orientation_of(*matrix);
  }
  metadata_.width = orientation_.swaps_sides() ? codec.height : codec.width;
  metadata_.height = orientation_.swaps_sides() ? codec.width : codec.height;
  metadata_.pixel_format = name_or_none(av_get_pix_fmt_name(static_cast<AVPixelFormat>(codec.format)));
  if (stream.duration > 0) metadata_.duration_from_header = seconds(stream.duration);
  if (stream.start_time != AV_NOPTS_VALUE) metadata_.begin_from_header = seconds(stream.start_time);
  if (codec.bit_rate > 0) metadata_.bit_rate = static_cast<double>(codec.bit_rate);
  const AVRational fps = stream.avg_frame_rate.num > 0 ? stream.avg_frame_rate : stream.r_frame_rate;
  if (fps.num > 0 && fps.den > 0) metadata_.average_fps_from_header = av_q2d(fps);
  if (stream.nb_frames > 0) metadata_.num_frames_from_header = stream.nb_frames;
  if (codec.sample_aspect_ratio.num > 0) {
    metadata_.pixel_aspect_ratio = {codec.sample_aspect_ratio.num, codec.sample_aspect_ratio.den};
  }
  if (codec.color_primaries != AVCOL_PRI_UNSPECIFIED) {
    metadata_.color_primaries = name_or_none(av_color_primaries_name(codec.color_primaries));
  }
  if (codec.color_space != AVCOL_SPC_UNSPECIFIED) {
    metadata_.color_space = name_or_none(av_color_space_name(codec.color_space));
  }
  if (codec.color_trc != AVCOL_TRC_UNSPECIFIED) {
    metadata_.color_transfer = name_or_none(av_color_transfer_name(codec.color_trc));
  }
}

bool Bitstream::gradual(const AVPacket& key) const {
  return parameters_->codec_id == AV_CODEC_ID_H264 && !inspect_h264(bytes_of(key), format_.nal).random_access;
}

void Bitstream::read_packets(Input& input, Deadline deadline) {
  check_count(avformat_index_get_entries_count(input.stream()));
  const bool mov = is_mov(*input.format());
  table_.contiguous = mov && one_sample_one_packet(*parameters_);
  scanned_ = !table_.contiguous;
  const LogCapture log;
  const std::unique_ptr<Input> tables =
      table_.contiguous ? Input::tables_only(table_.source, *input.stream(), table_.limits, deadline) : nullptr;
  list_packets(tables != nullptr ? *tables : input);
  if (tables != nullptr && may_hide_frames(*parameters_, table_.packets)) {
    table_.packets.clear();
    scanned_ = true;
    list_packets(input);
  }
  if (table_.packets.empty()) fail(log.explain("the stream has no frames"));
  order_frames(!mov);
  if (frames_.empty()) fail(log.explain("the stream has no frames that are shown"));
}

void Bitstream::check_count(int64_t packets) const {
  if (packets <= table_.limits.max_packets) return;
  fail("the stream has more than " + std::to_string(table_.limits.max_packets) + " packets, the limit (max_frames)",
       ErrorKind::kLimit);
}

void Bitstream::list_packets(Input& input) {
  auto packet = owned<PacketPtr>(av_packet_alloc());
  format_.independent = scanned_;
  CodedFormat headers = format_;
  bool simple = scanned_;
  while (input.read(packet.get())) {
    check_count(static_cast<int64_t>(table_.packets.size()) + 1);
    if (packet->size == 0) continue;
    simple = simple && simple_order(bytes_of(*packet), format_);
    if (format_.independent) format_.independent = independent(bytes_of(*packet), format_);
    const bool key = (packet->flags & AV_PKT_FLAG_KEY) != 0;
    table_.packets.push_back({packet->pts, packet->dts, packet->duration, packet->pos, packet->size, -1, -1, key,
                              (packet->flags & AV_PKT_FLAG_DISCARD) != 0,
                              !scanned_ || shows(bytes_of(*packet), headers), key && scanned_ && gradual(*packet)});
    if (av_packet_get_side_data(packet.get(), AV_PKT_DATA_ENCRYPTION_INFO, nullptr) != nullptr) {
      fail("the stream is encrypted: decrypt it first", ErrorKind::kUnsupported);
    }
    const bool new_parameters = av_packet_get_side_data(packet.get(), AV_PKT_DATA_NEW_EXTRADATA, nullptr) != nullptr;
    table_.contiguous = table_.contiguous && packet->pos >= 0 && !new_parameters;
    if (new_parameters) format_.codec = AV_CODEC_ID_NONE;  // NAL units may be told apart in another way from here on
  }
  if (simple) infer_pts(table_.packets);
}

// FFmpeg's output order is that of the timestamps. Where a stream starts its timestamps again at a key packet,
// the frames before come first all the same, and their timestamps go on. Damaged timestamps may be anything: sums
// saturate.
void Bitstream::order_frames(bool restart_at_keys) {
  int64_t offset = 0;
  int64_t end = INT64_MIN;
  int64_t next = 0;  // for what has no timestamp at all
  std::vector<std::pair<int64_t, int32_t>> times;
  times.reserve(table_.packets.size());
  for (int32_t i = 0; i < static_cast<int32_t>(table_.packets.size()); ++i) {
    const Packet& packet = table_.packets[i];
    int64_t pts = packet.pts != AV_NOPTS_VALUE ? packet.pts : packet.dts;
    if (pts == AV_NOPTS_VALUE) pts = next;
    pts = av_sat_add64(pts, offset);
    if (packet.is_frame()) {
      ordered_ = ordered_ && packet.pts != AV_NOPTS_VALUE;
      if (restart_at_keys && packet.key && pts < end && end != INT64_MIN) {
        offset = av_sat_add64(offset, av_sat_sub64(end, pts));
        pts = end;
      }
      end = std::max(end, av_sat_add64(pts, std::max<int64_t>(packet.duration, 1)));
      next = av_sat_add64(pts, 1);
    }
    times.emplace_back(pts, i);
  }
  number_frames(std::move(times));
}

// `times`: of each packet.
void Bitstream::number_frames(std::vector<std::pair<int64_t, int32_t>> times) {
  std::ranges::sort(times);
  for (int32_t order = 0; const auto& [pts, number] : times) {
    Packet& packet = table_.packets[number];
    packet.order = order++;
    if (!packet.is_frame()) continue;
    packet.frame = static_cast<int32_t>(frames_.size());
    frames_.push_back(number);
    frame_pts_.push_back(pts);
  }
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
  const bool last = frame + 1 == static_cast<int32_t>(frames_.size());
  return duration > 0 || last ? duration : av_sat_sub64(frame_pts_[frame + 1], frame_pts_[frame]);
}

int64_t Bitstream::end_pts() const {
  int64_t end = INT64_MIN;
  for (int32_t i = 0; i < static_cast<int32_t>(frames_.size()); ++i) {
    end = std::max(end, av_sat_add64(frame_pts_[i], frame_duration(i)));
  }
  return end;
}

bool Bitstream::leading(int32_t packet) const {
  const Packet& key = table_.packets[gops_[gop_of(packet)].first_packet];
  const Packet& p = table_.packets[packet];
  return key.pts != AV_NOPTS_VALUE && p.pts != AV_NOPTS_VALUE && p.pts < key.pts;
}

bool Bitstream::starts_clean(int gop) const {
  if (gop == 0) return true;
  if (scanned_) return !table_.packets[gops_[gop].first_packet].gradual;
  if (parameters_->codec_id != AV_CODEC_ID_H264) return true;
  int8_t known = clean_[gop].load(std::memory_order_relaxed);
  if (known == 0) {
    auto packet = owned<PacketPtr>(av_packet_alloc());
    try {
      PacketReader(table_).read(gops_[gop].first_packet, packet.get());
    } catch (const DecodeError&) {
      return true;  // it will not be decoded either: that tells which frames are concerned
    }
    known = gradual(*packet) ? -1 : 1;
    clean_[gop].store(known, std::memory_order_relaxed);
  }
  return known > 0;
}

}  // namespace flashcodec
