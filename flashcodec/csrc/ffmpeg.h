// Owners for FFmpeg's handles, and the text behind its error codes.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/common.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace flashcodec {

enum class ErrorKind {
  kSource,       // cannot be opened or read
  kUnsupported,  // nothing that this build decodes
  kDamaged,      // frames do not come out
  kLimit,        // over one of the limits
};

// What went wrong with which stream of which source; stream is -1 where none has been chosen yet. `position` is a
// byte offset (kSource) or a frame number (kDamaged), -1 if neither is known.
class DecodeError : public std::runtime_error {
 public:
  DecodeError(std::string source, int stream, std::string reason, ErrorKind kind = ErrorKind::kDamaged,
              int64_t position = -1);
  const std::string& source() const { return source_; }
  int stream() const { return stream_; }
  const std::string& reason() const { return reason_; }
  ErrorKind kind() const { return kind_; }
  int64_t position() const { return position_; }

 private:
  std::string source_;
  int stream_;
  std::string reason_;
  ErrorKind kind_;
  int64_t position_;
};

template <auto Free>
struct FreeByPointer {
  template <class T>
  void operator()(T* handle) const {
    Free(&handle);
  }
};
template <auto Free>
struct FreeBy {
  template <class T>
  void operator()(T* handle) const {
    Free(handle);
  }
};

using PacketPtr = std::unique_ptr<AVPacket, FreeByPointer<av_packet_free>>;
using FramePtr = std::unique_ptr<AVFrame, FreeByPointer<av_frame_free>>;
using CodecPtr = std::unique_ptr<AVCodecContext, FreeByPointer<avcodec_free_context>>;
using ParametersPtr = std::unique_ptr<AVCodecParameters, FreeByPointer<avcodec_parameters_free>>;
using SwsPtr = std::unique_ptr<SwsContext, FreeBy<sws_freeContext>>;

template <class Ptr>
Ptr owned(typename Ptr::pointer handle) {
  if (handle == nullptr) throw std::bad_alloc();
  return Ptr(handle);
}

inline std::span<const uint8_t> bytes_of(const AVPacket& packet) {
  return {packet.data, static_cast<size_t>(packet.size)};
}

std::string error_text(int code);

// Collects the last error message that FFmpeg logs on this thread; outside of such a scope FFmpeg's log
// works as the process has set it up.
class LogCapture {
 public:
  LogCapture();
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  const std::string& last_error() const { return last_error_; }
  // "<what>: <last message>", or only `what` if FFmpeg said nothing.
  std::string explain(const std::string& what) const;

 private:
  friend void capture_log(void*, int, const char*, va_list);
  std::string last_error_;
  LogCapture* outer_;
};

}  // namespace flashcodec
