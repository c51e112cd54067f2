// A source opened by libavformat.
#pragma once

#include <optional>
#include <vector>

extern "C" {
#include <libavformat/avformat.h>
}

#include "codecs/vpx.h"
#include "source/decode_error.h"
#include "source/field_joiner.h"
#include "source/source.h"
#include "source/source_limits.h"

namespace flashcodec {

class LogCapture;

// MP4, MOV and their kin.
bool is_mov(const AVFormatContext& format);

struct ByteRange {
  int64_t begin;
  int64_t end;
};

struct FreeIo {
  void operator()(AVIOContext* io) const {
    av_freep(&io->buffer);
    avio_context_free(&io);
  }
};
using IoPtr = std::unique_ptr<AVIOContext, FreeIo>;
using FormatPtr = std::unique_ptr<AVFormatContext, FreeByPointer<avformat_close_input>>;

class Input {
 public:
  // Opens the source, finds its streams and chooses one: `stream_index`, or the best video stream if it is -1.
  // The other streams are discarded. Throws DecodeError, also once the deadline has passed, or std::invalid_argument
  // for a stream that is no video.
  Input(SourcePtr source, int stream_index, const Limits& limits, Deadline deadline = {});

  // The same source once more, for packets as the container's tables describe them: bytes inside of samples that
  // the tables list are not read, such packets have undefined content. For MP4/MOV.
  static std::unique_ptr<Input> tables_only(const SourcePtr& source, const AVStream& stream, const Limits& limits,
                                            Deadline deadline);

  ~Input() = default;
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  AVFormatContext* format() const { return format_.get(); }
  AVStream* stream() const { return format_->streams[stream_index_]; }
  int stream_index() const { return stream_index_; }

  // The next packet of the chosen stream, a whole frame; false at the end. Damaged parts are passed over as FFmpeg
  // does.
  bool read(AVPacket* packet);

  // Goes to a place at or before a packet with this byte offset and decoding time stamp; false if that fails.
  bool seek(int64_t position, int64_t timestamp);

 private:
  Input(SourcePtr source, const Limits& limits, Deadline deadline);

  static int read_callback(void* self, uint8_t* out, int size);
  static int64_t seek_callback(void* self, int64_t offset, int whence);
  static int interrupt_callback(void* self);
  int read_bytes(std::span<uint8_t> out);
  bool read_packet(AVPacket* packet);
  void check_size() const;
  void check_tables() const;
  void open();
  void reopen();
  void find_streams(int wanted);
  void describe_vp9();
  std::optional<Vp9Format> first_vp9_format(int index);
  bool take_parsed_formats();
  int best_stream(int wanted) const;
  void choose(int stream_index);
  void check_deadline() const;
  void check_kind() const;
  [[noreturn]] void fail_to_open(int status, const LogCapture& log) const;
  [[noreturn]] void fail(int stream, const std::string& reason, ErrorKind kind) const;

  SourcePtr source_;
  Limits limits_;
  Deadline deadline_;
  int64_t position_ = 0;
  std::vector<ByteRange> skipped_;  // sorted
  IoPtr io_;
  FormatPtr format_;
  bool probe_pictures_ = false;  // even where the container should tell enough
  int stream_index_ = -1;
  std::unique_ptr<FieldJoiner> fields_;
  std::optional<DecodeError> read_error_;  // FFmpeg is only told that reading failed
};

}  // namespace flashcodec
