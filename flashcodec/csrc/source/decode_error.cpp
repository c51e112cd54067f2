#include "source/decode_error.h"

#include <utility>

namespace flashcodec {

namespace {

std::string describe(const std::string& source, int stream, const std::string& reason) {
  if (stream < 0) return source + ": " + reason;
  return source + ": stream " + std::to_string(stream) + ": " + reason;
}

}  // namespace

DecodeError::DecodeError(std::string source, int stream, std::string reason, ErrorKind kind, int64_t position)
    : std::runtime_error(describe(source, stream, reason)),
      source_(std::move(source)),
      stream_(stream),
      reason_(std::move(reason)),
      kind_(kind),
      position_(position) {}

}  // namespace flashcodec
