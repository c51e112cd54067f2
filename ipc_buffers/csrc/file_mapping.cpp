#include "file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "arena.h"

namespace ipc {
namespace {

ArenaError failed(const std::string& path, const std::string& what) {
  return ArenaError("the file " + path + " cannot be " + what + ": " + std::system_category().message(errno));
}

}  // namespace

std::unique_ptr<FileMapping> FileMapping::of(const std::string& path, std::uint64_t offset, std::uint64_t size) {
  if (size == 0 || size > Arena::kMaxBytes || offset > Arena::kMaxBytes || offset % Arena::kAlignment != 0) {
    throw std::invalid_argument("bytes of a file begin at a multiple of " + std::to_string(Arena::kAlignment) +
                                " and are 1 to " + std::to_string(Arena::kMaxBytes) + ", not " + std::to_string(size) +
                                " from " + std::to_string(offset));
  }
  if (::prctl(PR_GET_DUMPABLE) != 1) {
    throw ArenaError("others cannot map the file " + path +
                     " through this process, because its program has capabilities or a user of its own");
  }
  return std::unique_ptr<FileMapping>(new FileMapping(path, offset, size));
}

std::unique_ptr<FileMapping> FileMapping::find(const FileHandle& handle, const ProcessIdentity& opener,
                                               std::uint64_t size) {
  const auto pid = std::to_string(opener.pid);
  if (!opener.is_alive()) throw ArenaError("process " + pid + ", which had the file of these bytes open, has ended");
  const auto path = "/proc/" + pid + "/fd/" + std::to_string(handle.descriptor);
  std::unique_ptr<FileMapping> found(new FileMapping(path, handle.offset, size));
  if (found->handle_.device != handle.device || found->handle_.inode != handle.inode) {
    throw ArenaError("process " + pid + " has closed the file of these bytes");
  }
  return found;
}

FileMapping::FileMapping(const std::string& path, std::uint64_t offset, std::uint64_t size)
    : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!file_.is_open()) throw failed(path, "opened");
  struct stat status {};
  if (::fstat(file_.descriptor(), &status) != 0) throw failed(path, "looked at");
  const auto available = static_cast<std::uint64_t>(status.st_size);
  if (offset > available || size > available - offset) {
    throw ArenaError("the file " + path + " has " + std::to_string(available) + " bytes, not " + std::to_string(size) +
                     " from " + std::to_string(offset));
  }
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file_.descriptor(), static_cast<off_t>(offset));
  if (address == MAP_FAILED) throw failed(path, "mapped");
  handle_ = {file_.descriptor(), status.st_dev, status.st_ino, offset};
  bytes_ = {static_cast<std::byte*>(address), size};
}

FileMapping::~FileMapping() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace ipc
