#include "ffmpeg/log.h"

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/error.h>
#include <libavutil/log.h>
}

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

namespace flashcodec {

namespace {

thread_local LogCapture* current_capture = nullptr;

// What FFmpeg's decoders say where they make up a picture that others refer to, or a part of one.
constexpr std::array kMadeUp{"concealing",
                             "error while decoding MB",
                             "slice end not reached but screenspace end",
                             "overread",
                             "illegal short term buffer state",
                             "co located POCs unavailable",
                             "Missing reference picture",
                             "reference picture missing during reorder",
                             "Could not find ref with POC",
                             "Not all references are available",
                             "first frame is no keyframe",
                             "Discarding interframe without a prior keyframe"};

// The decoders that listen; others of this process log through the same callback.
struct Listeners {
  std::mutex mutex;
  std::set<void*> addresses;
};

Listeners& listeners() {
  static Listeners all;
  return all;
}

bool is_codec(void* context) {
  return context != nullptr && *static_cast<const AVClass**>(context) == avcodec_get_class();
}

}  // namespace

std::string error_text(int code) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(code, text.data(), text.size());
  return text.data();
}

void count_made_up(void* context, int level, const char* format) {
  if (!is_codec(context)) return;
  const auto* codec = static_cast<const AVCodecContext*>(context);
  if (level - codec->log_level_offset > AV_LOG_INFO) return;
  if (std::ranges::none_of(kMadeUp, [&](const char* text) { return std::strstr(format, text) != nullptr; })) return;
  const std::lock_guard lock(listeners().mutex);
  if (listeners().addresses.contains(codec->opaque)) ++static_cast<MadeUpPictures*>(codec->opaque)->count_;
}

void capture_log(void* context, int level, const char* format, va_list arguments) {
  count_made_up(context, level, format);
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

static void install_log() {
  static std::once_flag installed;
  std::call_once(installed, [] { av_log_set_callback(capture_log); });
}

LogCapture::LogCapture() : outer_(current_capture) {
  install_log();
  current_capture = this;
}

MadeUpPictures::MadeUpPictures() {
  install_log();
  const std::lock_guard lock(listeners().mutex);
  listeners().addresses.insert(this);
}

MadeUpPictures::~MadeUpPictures() {
  const std::lock_guard lock(listeners().mutex);
  listeners().addresses.erase(this);
}

LogCapture::~LogCapture() {
  current_capture = outer_;
  if (outer_ != nullptr && !last_error_.empty()) outer_->last_error_ = last_error_;
}

std::string LogCapture::explain(const std::string& what) const {
  return last_error_.empty() ? what : what + " (" + last_error_ + ")";
}

}  // namespace flashcodec
