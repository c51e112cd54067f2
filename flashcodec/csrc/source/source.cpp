#include "source/source.h"

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

struct Descriptor {
  explicit Descriptor(int fd) : number(fd) {}
  ~Descriptor() { ::close(number); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number;
};

class FileSource : public Source {
 public:
  FileSource(int fd, std::string name) : name_(std::move(name)), fd_(fd) {
    struct stat status {};
    if (::fstat(fd_.number, &status) != 0) throw DecodeError(name_, -1, errno_text(), ErrorKind::kSource);
    size_ = status.st_size;
  }

  const std::string& name() const override { return name_; }
  int64_t size() const override { return size_; }

  size_t read_at(int64_t offset, std::span<uint8_t> out) override {
    for (;;) {
      const ssize_t got = ::pread(fd_.number, out.data(), out.size(), offset);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) throw DecodeError(name_, -1, errno_text(), ErrorKind::kSource, offset);
    }
  }

 private:
  std::string name_;
  Descriptor fd_;
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

SourcePtr open_descriptor(int fd, std::string name) { return std::make_shared<FileSource>(fd, std::move(name)); }

SourcePtr open_memory(std::span<const uint8_t> bytes, std::shared_ptr<void> owner, std::string name) {
  return std::make_shared<MemorySource>(bytes, std::move(owner), std::move(name));
}

}  // namespace flashcodec
