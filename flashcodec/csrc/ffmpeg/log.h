// What FFmpeg says about failures.
#pragma once

#include <atomic>
#include <cstdarg>
#include <string>

namespace flashcodec {

// Return the text behind one of FFmpeg's error codes.
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
  // Return "<what> (<last message>)", or only `what` if FFmpeg said nothing.
  std::string explain(const std::string& what) const;

 private:
  friend void capture_log(void*, int, const char*, va_list);
  std::string last_error_;
  LogCapture* outer_;
};

// Counts what a decoder says of pictures that it makes up, or parts of them, also on its frame threads: nothing else
// tells in time. A codec context that has its address as `opaque` is counted.
class MadeUpPictures {
 public:
  MadeUpPictures();
  ~MadeUpPictures();
  MadeUpPictures(const MadeUpPictures&) = delete;
  MadeUpPictures& operator=(const MadeUpPictures&) = delete;

  int count() const { return count_.load(std::memory_order_relaxed); }

 private:
  friend void count_made_up(void*, int, const char*);
  std::atomic<int> count_ = 0;
};

}  // namespace flashcodec
