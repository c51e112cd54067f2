#include "ffmpeg/log.h"

extern "C" {
#include <libavutil/error.h>
#include <libavutil/log.h>
}

#include <array>
#include <cstdio>
#include <mutex>

namespace flashcodec {

namespace {

thread_local LogCapture* current_capture = nullptr;

}  // namespace

std::string error_text(int code) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(code, text.data(), text.size());
  return text.data();
}

void capture_log(void* context, int level, const char* format, va_list arguments) {
  if (current_capture == nullptr) {
    av_log_default_callback(context, level, format, arguments);
    return;
  }
  if (level > AV_LOG_ERROR) return;
  std::array<char, 512> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  std::string message = text.data();
  while (!message.empty() && (message.back() == '\n' || message.back() == ' ')) message.pop_back();
  if (!message.empty()) current_capture->last_error_ = message;
}

LogCapture::LogCapture() : outer_(current_capture) {
  static std::once_flag installed;
  std::call_once(installed, [] { av_log_set_callback(capture_log); });
  current_capture = this;
}

LogCapture::~LogCapture() {
  current_capture = outer_;
  if (outer_ != nullptr && !last_error_.empty()) outer_->last_error_ = last_error_;
}

std::string LogCapture::explain(const std::string& what) const {
  return last_error_.empty() ? what : what + " (" + last_error_ + ")";
}

}  // namespace flashcodec
