// What can go wrong with a source.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace flashcodec {

enum class ErrorKind {
  kSource,       // cannot be opened or read
  kUnsupported,  // nothing that this build decodes
  kDamaged,      // frames do not come out
  kLimit,        // over one of the limits
  kNoVideo,      // nothing to decode at all
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

}  // namespace flashcodec
