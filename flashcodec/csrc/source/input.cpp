#include "source/input.h"

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "codecs/h264_sps.h"
#include "ffmpeg/log.h"
#include "source/file_kind.h"
#include "source/mp4_tables.h"

namespace flashcodec {

namespace {

// The container formats that are read, as FFmpeg names its demuxers.
constexpr const char* kFormats =
    "mov,matroska,webm,mpegts,mpeg,avi,flv,ogg,asf,mxf,nut,rm,dv,gxf,wtv,ivf,obu,av1,h264,hevc,vvc,h263,h261,m4v,"
    "mpegvideo,vc1,mjpeg,gif,apng,webp_pipe,yuv4mpegpipe,3gp,mp4";

constexpr int kBufferBytes = 1 << 15;
constexpr int64_t kLeastBytes = 12;  // with fewer, kinds of files cannot be told apart

// A container must not make us open other files or URLs (playlists, external tracks).
int refuse_to_open(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) { return AVERROR(EPERM); }

struct Options {
  AVDictionary* dictionary = nullptr;
  Options() = default;
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  ~Options() { av_dict_free(&dictionary); }
};

// Where the samples of all streams lie; neighbours are one range.
std::vector<ByteRange> sample_ranges(const AVFormatContext& format) {
  std::vector<ByteRange> ranges;
  for (unsigned s = 0; s < format.nb_streams; ++s) {
    AVStream* stream = format.streams[s];
    for (int i = 0; i < avformat_index_get_entries_count(stream); ++i) {
      const AVIndexEntry* entry = avformat_index_get_entry(stream, i);
      if (entry->pos < 0 || entry->size <= 0) continue;
      if (!ranges.empty() && ranges.back().end == entry->pos) {
        ranges.back().end += entry->size;
      } else {
        ranges.push_back({entry->pos, av_sat_add64(entry->pos, entry->size)});
      }
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  std::vector<ByteRange> joined;
  for (const ByteRange& range : ranges) {
    if (!joined.empty() && range.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, range.end);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

// The container tells all that FFmpeg would otherwise find out by decoding a picture, which takes milliseconds.
bool described(const AVFormatContext& format, const AVStream& stream) {
  const AVCodecParameters& codec = *stream.codecpar;
  if (!is_mov(format) || codec.codec_id != AV_CODEC_ID_H264 || codec.width <= 0) return false;
  constexpr std::array plain{66U, 77U, 88U, 100U, 110U, 122U};  // profiles of which the parser tells the pixel format
  const auto sps = first_h264_sps(configuration_of(codec));
  return sps && !sps->tells_shape && !sps->tells_colours && sps->order_count_type == 0 &&
         std::ranges::find(plain, sps->profile) != plain.end();
}

bool lacks_vp9_format(const AVStream* stream) {
  const AVCodecParameters& codec = *stream->codecpar;
  return codec.codec_id == AV_CODEC_ID_VP9 && codec.format == AV_PIX_FMT_NONE && codec.width > 0;
}

void take_vp9_format(const Vp9Format& format, AVCodecParameters& codec) {
  constexpr std::array spaces{AVCOL_SPC_UNSPECIFIED, AVCOL_SPC_BT470BG,    AVCOL_SPC_BT709,   AVCOL_SPC_SMPTE170M,
                              AVCOL_SPC_SMPTE240M,   AVCOL_SPC_BT2020_NCL, AVCOL_SPC_RESERVED};
  codec.profile = format.profile;
  codec.format = format.bit_depth == 8 ? AV_PIX_FMT_YUV420P
                                       : (format.bit_depth == 10 ? AV_PIX_FMT_YUV420P10 : AV_PIX_FMT_YUV420P12);
  codec.color_space = spaces[format.color_space];
  codec.color_range = format.full_range ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
}

std::string media_name(AVMediaType type) {
  const char* name = av_get_media_type_string(type);
  return name != nullptr ? name : "unknown data";
}

}  // namespace

bool is_mov(const AVFormatContext& format) {
  return std::string(format.iformat->name).find("mov") != std::string::npos;
}

Input::Input(SourcePtr source, const Limits& limits, Deadline deadline)
    : source_(std::move(source)), limits_(limits), deadline_(deadline) {}

Input::Input(SourcePtr source, int stream_index, const Limits& limits, Deadline deadline)
    : Input(std::move(source), limits, deadline) {
  check_size();
  check_tables();
  open();
  find_streams(stream_index);
}

void Input::check_size() const {
  if (source_->size() == 0) fail(-1, "the source is empty (0 bytes)", ErrorKind::kSource);
  if (source_->size() <= limits_.max_source_bytes) return;
  fail(-1,
       "the source has " + std::to_string(source_->size()) + " bytes, over the limit of " +
           std::to_string(limits_.max_source_bytes) + " (max_source_bytes)",
       ErrorKind::kLimit);
}

void Input::check_tables() const {
  // Sound has samples of its own, so a small limit of frames is not meant for all of them.
  constexpr int64_t kHarmless = 1 << 20;
  const int64_t entries = unlisted_entries(*source_);
  if (entries <= std::max<int64_t>(limits_.max_packets, kHarmless)) return;
  fail(-1,
       "its tables claim " + std::to_string(entries) + " entries, over the limit of " +
           std::to_string(limits_.max_packets) + " (max_frames)",
       ErrorKind::kLimit);
}

std::unique_ptr<Input> Input::tables_only(const SourcePtr& source, const AVStream& stream, const Limits& limits,
                                          Deadline deadline) {
  std::unique_ptr<Input> input(new Input(source, limits, deadline));  // NOLINT(modernize-make-unique): private
  input->open();
  if (stream.index >= static_cast<int>(input->format_->nb_streams)) {
    input->fail(stream.index, "the stream is gone", ErrorKind::kSource);
  }
  input->choose(stream.index);
  input->stream()->r_frame_rate = stream.r_frame_rate;  // from it packets get their durations
  input->format_->flags |= AVFMT_FLAG_NOPARSE;
  input->skipped_ = sample_ranges(*input->format_);
  return input;
}

void Input::choose(int stream_index) {
  stream_index_ = stream_index;
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    if (static_cast<int>(i) != stream_index) format_->streams[i]->discard = AVDISCARD_ALL;
  }
}

void Input::fail(int stream, const std::string& reason, ErrorKind kind) const {
  if (!read_error_) throw DecodeError(source_->name(), stream, reason, kind);
  throw DecodeError(source_->name(), stream, reason + " (" + read_error_->reason() + ")", read_error_->kind(),
                    read_error_->position());
}

void Input::check_deadline() const {
  if (!deadline_.passed()) return;
  throw DecodeError(source_->name(), stream_index_, analysis_too_long(limits_), ErrorKind::kLimit);
}

void Input::open() {
  auto* buffer = static_cast<unsigned char*>(av_malloc(kBufferBytes));
  if (buffer == nullptr) throw std::bad_alloc();
  io_.reset(avio_alloc_context(buffer, kBufferBytes, 0, this, read_callback, nullptr, seek_callback));
  if (io_ == nullptr) av_free(buffer);
  auto* format = avformat_alloc_context();
  if (io_ == nullptr || format == nullptr) throw std::bad_alloc();
  format->pb = io_.get();
  format->interrupt_callback = {interrupt_callback, this};
  // A video is one sequence of bytes: formats that name other files or addresses (playlists, DASH, concat, SDP)
  // would read them for whoever sent the video.
  format->io_open = refuse_to_open;
  format->protocol_whitelist = av_strdup("none");
  format->format_whitelist = av_strdup(kFormats);
  const LogCapture log;
  const int status = avformat_open_input(&format, nullptr, nullptr, nullptr);  // frees it if it fails
  format_.reset(format);
  check_deadline();
  if (status < 0) fail_to_open(status, log);
}

// Fails if the source is known to be something else. By chance its bytes may look like a container's to FFmpeg.
void Input::check_kind() const {
  if (read_error_) return;
  std::array<uint8_t, kHeadBytes> head{};
  const std::span seen(head.data(), source_->read_at(0, head));
  if (source_->size() < kLeastBytes) {
    fail(-1, "not a video, or cut off: the source has " + std::to_string(source_->size()) + " bytes",
         ErrorKind::kSource);
  }
  const std::optional<FileKind> kind = kind_of_file(seen);
  if (!kind) return;
  const std::string text = kind->image ? kind->name + ": flashcodec.image decodes it" : kind->text();
  fail(-1, "not a video file but " + text, kind->media ? ErrorKind::kNoVideo : ErrorKind::kSource);
}

void Input::fail_to_open(int status, const LogCapture& log) const {
  check_kind();
  if (log.last_error() == "moov atom not found") {
    fail(-1, log.explain("the list of its frames is missing: it is cut off, or its recording was not finished"),
         ErrorKind::kSource);
  }
  if (!read_error_ && (status == AVERROR_EOF || status == AVERROR(EIO))) {
    fail(-1, log.explain("it is cut off: it ends before it tells of its streams"), ErrorKind::kSource);
  }
  if (status == AVERROR_INVALIDDATA)
    fail(-1, log.explain("not a video file, or damaged beyond recognition"), ErrorKind::kSource);
  if (status == AVERROR(EINVAL)) fail(-1, "not in a video container format that is read here", ErrorKind::kNoVideo);
  fail(-1, log.explain("cannot be opened: " + error_text(status)), ErrorKind::kSource);
}

void Input::find_streams(int wanted) {
  const LogCapture log;
  if (!probe_pictures_) describe_vp9();
  std::vector<Options> options(format_->nb_streams);
  std::vector<AVDictionary*> dictionaries;
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    AVDictionary** dictionary = &options[i].dictionary;
    av_dict_set_int(dictionary, "max_pixels", limits_.max_pixels, 0);
    // FFmpeg decodes a few pictures for what their headers tell, not for their looks.
    av_dict_set(dictionary, "skip_loop_filter", "all", 0);
    if (!probe_pictures_ && described(*format_, *format_->streams[i])) av_dict_set(dictionary, "skip_frame", "all", 0);
    dictionaries.push_back(*dictionary);
  }
  const int status = avformat_find_stream_info(format_.get(), dictionaries.empty() ? nullptr : dictionaries.data());
  for (size_t i = 0; i < options.size(); ++i) options[i].dictionary = dictionaries[i];
  check_deadline();
  if (status < 0) {
    check_kind();
    const bool ends = status == AVERROR_EOF && !read_error_;
    const std::string why = ends ? "it is cut off, it ends before a picture" : error_text(status);
    fail(-1, log.explain("its streams cannot be read: " + why), ErrorKind::kSource);
  }
  if (!probe_pictures_ && !take_parsed_formats()) {
    probe_pictures_ = true;
    reopen();
    return find_streams(wanted);
  }

  if (wanted >= static_cast<int>(format_->nb_streams)) {
    throw std::invalid_argument(source_->name() + ": the stream index " + std::to_string(wanted) +
                                " is not a valid stream: there are only " + std::to_string(format_->nb_streams));
  }
  if (wanted >= 0 && format_->streams[wanted]->codecpar->codec_type != AVMEDIA_TYPE_VIDEO) {
    throw std::invalid_argument(source_->name() + ": stream " + std::to_string(wanted) + " is " +
                                media_name(format_->streams[wanted]->codecpar->codec_type) + ", not a video stream");
  }
  choose(best_stream(wanted));
  const AVCodecParameters& codec = *stream()->codecpar;
  if (codec.codec_id == AV_CODEC_ID_H264) fields_ = std::make_unique<FieldJoiner>(codec);
}

// Few containers tell what VP9's pictures are like, and FFmpeg decodes one to know: their first header tells it, too.
void Input::describe_vp9() {
  const std::span streams(format_->streams, format_->nb_streams);
  const auto lacking = std::find_if(streams.begin(), streams.end(), lacks_vp9_format);
  if (lacking == streams.end()) return;
  const int index = (*lacking)->index;
  const std::optional<Vp9Format> format = first_vp9_format(index);
  reopen();
  if (!format || index >= static_cast<int>(format_->nb_streams)) return;
  AVStream* stream = format_->streams[index];
  const AVCodecParameters& codec = *stream->codecpar;
  if (!lacks_vp9_format(stream) || codec.width != format->width || codec.height != format->height) return;
  take_vp9_format(*format, *stream->codecpar);
}

std::optional<Vp9Format> Input::first_vp9_format(int index) {
  constexpr int kMostPackets = 256;  // of other streams, before the first of this one
  const auto packet = owned<PacketPtr>(av_packet_alloc());
  for (int i = 0; i < kMostPackets; ++i) {
    check_deadline();
    av_packet_unref(packet.get());
    const int status = av_read_frame(format_.get(), packet.get());
    if (status < 0 && status != AVERROR(EAGAIN)) return std::nullopt;
    if (status < 0 || packet->stream_index != index) continue;
    return vp9_format({packet->data, static_cast<size_t>(packet->size)});
  }
  return std::nullopt;
}

void Input::reopen() {
  format_.reset();
  position_ = 0;
  open();
}

// What FFmpeg has not got from pictures that it left out, its parsers have from the parameter sets.
bool Input::take_parsed_formats() {
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    AVStream* stream = format_->streams[i];
    if (!described(*format_, *stream) || stream->codecpar->format != AV_PIX_FMT_NONE) continue;
    const AVCodecParserContext* parser = av_stream_get_parser(stream);
    const bool parsed = parser != nullptr && parser->format != AV_PIX_FMT_NONE && parser->width > 0;
    if (!parsed || parser->width != stream->codecpar->width || parser->height != stream->codecpar->height) return false;
    stream->codecpar->format = parser->format;
  }
  return true;
}

// FFmpeg's choice, but no cover art unless it was asked for.
int Input::best_stream(int wanted) const {
  const int best = av_find_best_stream(format_.get(), AVMEDIA_TYPE_VIDEO, wanted, -1, nullptr, 0);
  if (best < 0) {
    check_kind();
    const bool sound = av_find_best_stream(format_.get(), AVMEDIA_TYPE_AUDIO, -1, -1, nullptr, 0) >= 0;
    fail(-1, sound ? "there is no video stream, only audio" : "there is no video stream, or it is cut off before it",
         ErrorKind::kNoVideo);
  }
  if (wanted >= 0) return best;
  const auto is_picture = [&](int i) { return (format_->streams[i]->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0; };
  if (!is_picture(best)) return best;
  for (int i = 0; i < static_cast<int>(format_->nb_streams); ++i) {
    if (format_->streams[i]->codecpar->codec_type == AVMEDIA_TYPE_VIDEO && !is_picture(i)) return i;
  }
  fail(-1, "there is no video stream, only an attached picture (stream " + std::to_string(best) + ")",
       ErrorKind::kNoVideo);
}

bool Input::read(AVPacket* packet) {
  if (fields_ == nullptr) return read_packet(packet);
  return fields_->read([this](AVPacket* next) { return read_packet(next); }, packet);
}

bool Input::seek(int64_t position, int64_t timestamp) {
  const bool by_byte = (format_->iformat->flags & AVFMT_TS_DISCONT) != 0;
  if (fields_ != nullptr) fields_->reset();
  return av_seek_frame(format_.get(), by_byte ? -1 : stream_index_, by_byte ? position : timestamp,
                       by_byte ? AVSEEK_FLAG_BYTE : AVSEEK_FLAG_BACKWARD) >= 0;
}

bool Input::read_packet(AVPacket* packet) {
  const LogCapture log;
  for (;;) {
    check_deadline();
    av_packet_unref(packet);
    const int status = av_read_frame(format_.get(), packet);
    if (status == AVERROR(EAGAIN)) continue;
    if (status < 0) {
      if (read_error_) fail(stream_index_, "reading failed", ErrorKind::kSource);
      return false;
    }
    if (packet->stream_index == stream_index_) return true;
  }
}

int Input::read_bytes(std::span<uint8_t> out) {
  const auto range = std::upper_bound(skipped_.begin(), skipped_.end(), position_,
                                      [](int64_t at, const ByteRange& r) { return at < r.end; });
  if (range != skipped_.end() && range->begin <= position_) {
    const auto count = std::min<int64_t>(static_cast<int64_t>(out.size()), range->end - position_);
    position_ += count;
    return static_cast<int>(count);
  }
  if (range != skipped_.end()) {
    out = out.first(std::min<size_t>(out.size(), static_cast<size_t>(range->begin - position_)));
  }
  const size_t count = source_->read_at(position_, out);
  position_ += static_cast<int64_t>(count);
  return count == 0 ? AVERROR_EOF : static_cast<int>(count);
}

// Of MP4/MOV, or of what may still turn out to be that.
int Input::read_callback(void* self, uint8_t* out, int size) {
  auto* input = static_cast<Input*>(self);
  if (input->deadline_.passed()) return AVERROR_EXIT;
  try {
    return input->read_bytes({out, static_cast<size_t>(size)});
  } catch (const DecodeError& error) {
    input->read_error_ = error;
  } catch (const std::exception& error) {
    input->read_error_ = DecodeError(input->source_->name(), -1, error.what(), ErrorKind::kSource, input->position_);
  }
  return AVERROR(EIO);
}

int Input::interrupt_callback(void* self) { return static_cast<Input*>(self)->deadline_.passed() ? 1 : 0; }

int64_t Input::seek_callback(void* self, int64_t offset, int whence) {
  auto* input = static_cast<Input*>(self);
  switch (whence & ~AVSEEK_FORCE) {
    case AVSEEK_SIZE:
      return input->source_->size();
    case SEEK_SET:
      break;
    case SEEK_CUR:
      offset = av_sat_add64(offset, input->position_);
      break;
    case SEEK_END:
      offset = av_sat_add64(offset, input->source_->size());
      break;
    default:
      return AVERROR(EINVAL);
  }
  if (offset < 0) return AVERROR(EINVAL);
  return input->position_ = offset;
}

}  // namespace flashcodec
