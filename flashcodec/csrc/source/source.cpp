#include "source/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "source/decode_error.h"

namespace flashcodec {

namespace {

std::string errno_text() { return std::generic_category().message(errno); }

class FileSource : public Source {
 public:
  explicit FileSource(const std::string& path) : name_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw DecodeError(name_, -1, errno_text(), ErrorKind::kSource);
    struct stat status {};
    if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(fd_);
      throw DecodeError(name_, -1, S_ISDIR(status.st_mode) ? "is a directory" : "not a regular file",
                        ErrorKind::kSource);
    }
    size_ = status.st_size;
  }
  ~FileSource() override { ::close(fd_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  const std::string& name() const override { return name_; }
  int64_t size() const override { return size_; }

  size_t read_at(int64_t offset, std::span<uint8_t> out) override {
    for (;;) {
      const ssize_t got = ::pread(fd_, out.data(), out.size(), offset);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) throw DecodeError(name_, -1, errno_text(), ErrorKind::kSource, offset);
    }
  }

 private:
  std::string name_;
  int fd_;
  int64_t size_ = 0;
};

class MemorySource : public Source {
 public:
  MemorySource(std::span<const uint8_t> bytes, std::shared_ptr<void> owner, std::string name)
      : bytes_(bytes), owner_(std::move(owner)), name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }

  size_t read_at(int64_t offset, std::span<uint8_t> out) override {
    if (offset < 0 || offset >= size()) return 0;
    const size_t count = std::min(out.size(), bytes_.size() - static_cast<size_t>(offset));
    std::memcpy(out.data(), bytes_.data() + offset, count);
    return count;
  }

 private:
  std::span<const uint8_t> bytes_;
  std::shared_ptr<void> owner_;
  std::string name_;
};

}  // namespace

SourcePtr open_file(const std::string& path) { return std::make_shared<FileSource>(path); }

SourcePtr open_memory(std::span<const uint8_t> bytes, std::shared_ptr<void> owner, std::string name) {
  return std::make_shared<MemorySource>(bytes, std::move(owner), std::move(name));
}

}  // namespace flashcodec
