#include "arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <system_error>

#include "arena_file.h"

namespace ipc {
namespace {

constexpr std::uint64_t kHeaderBytes = Arena::kAlignment;
constexpr mode_t kOwnerOnly = 0600;

std::string reason(int error) { return std::system_category().message(error); }

ArenaError error_about(const std::string& name, const std::string& text) {
  return ArenaError("arena '" + name + "': " + text);
}

void check_name(const std::string& name) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; };
  if (name.empty() || name.size() > Arena::kMaxName || !std::all_of(name.begin(), name.end(), allowed)) {
    throw std::invalid_argument("an arena name must be 1 to " + std::to_string(Arena::kMaxName) +
                                " letters, digits, '.', '_' or '-', not '" + name + "'");
  }
}

// A file system without a limit (mount -o size=0, podman run --shm-size=0) tells of no blocks at all.
std::uint64_t free_shm_bytes() {
  struct statvfs info {};
  if (::statvfs(kShmFolder, &info) != 0) return 0;
  return info.f_blocks == 0 ? kHeaderBytes + Arena::kMaxBytes : std::uint64_t{info.f_bavail} * info.f_frsize;
}

ArenaError no_space(const std::string& name, std::uint64_t bytes) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  const auto free = free_shm_bytes();
  const auto missing = bytes > free ? (bytes - free) / kMiB + 1 : 1;
  return error_about(name, "needs " + std::to_string(bytes) + " bytes, but " + kShmFolder + " has " +
                               std::to_string(free) + " bytes free; enlarge it by " + std::to_string(missing) +
                               " MiB (mount -o remount,size=… " + kShmFolder +
                               "; docker run --shm-size=…) or ask for less");
}

std::byte* map(const std::string& name, const File& file, std::uint64_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.descriptor(), 0);
  if (address == MAP_FAILED) {
    throw error_about(name, "cannot map " + std::to_string(bytes) + " bytes: " + reason(errno));
  }
  return static_cast<std::byte*>(address);
}

struct stat status_of(const File& file) {
  struct stat info {};
  ::fstat(file.descriptor(), &info);
  return info;
}

// Takes [first, last) of the file, in steps: a signal undoes the step it interrupts, not all that was done.
int allocate_range(const File& file, std::uint64_t first, std::uint64_t last) {
  constexpr std::uint64_t kStep = std::uint64_t{64} << 20;
  while (first < last) {
    const auto step = std::min(kStep, last - first);
    const int error = ::posix_fallocate(file.descriptor(), static_cast<off_t>(first), static_cast<off_t>(step));
    if (error == EINTR) continue;
    if (error != 0) return error;
    first += step;
  }
  return 0;
}

void check_header(const std::string& name, const ArenaHeader& header, std::uint64_t file_bytes, ArenaKind kind) {
  if (header.magic != kArenaMagic) throw error_about(name, "is not an arena (no arena header)");
  if (header.version != kArenaVersion) {
    throw error_about(name, "has layout version " + std::to_string(header.version) + ", this library reads " +
                                std::to_string(kArenaVersion) + "; start all processes from one installation");
  }
  if (header.kind != kind) {
    throw error_about(name, "holds a " + std::string(describe(header.kind)) + ", not a " + std::string(describe(kind)));
  }
  if (std::atomic_ref(const_cast<std::uint32_t&>(header.ready)).load(std::memory_order_acquire) == 0) {
    throw error_about(name, "is still being created by process " + std::to_string(header.creator.pid));
  }
  if (file_bytes != kHeaderBytes + header.size) {
    throw error_about(name, "is damaged: the file has " + std::to_string(file_bytes) + " bytes, its header says " +
                                std::to_string(kHeaderBytes + header.size));
  }
}

}  // namespace

std::string_view describe(ArenaKind kind) {
  switch (kind) {
    case ArenaKind::plain:
      return "plain arena";
    case ArenaKind::page_pool:
      return "page pool";
    case ArenaKind::collective:
      return "collective";
    case ArenaKind::message_queue:
      return "message queue";
    case ArenaKind::memory:
      return "memory";
  }
  return "kind of arena unknown to this version";
}

void ArenaIdentity::unlink() const {
  const auto path = shm_name(name);
  const File file(::shm_open(path.c_str(), O_RDONLY, 0));
  if (file.is_open() && status_of(file).st_ino == inode) ::shm_unlink(path.c_str());
}

Arena::Arena(ArenaIdentity identity, std::byte* mapping, std::uint64_t size)
    : identity_(std::move(identity)), mapping_(mapping), size_(size) {}

Arena::~Arena() { ::munmap(mapping_, kHeaderBytes + size_); }

ArenaHeader& Arena::header() const { return *reinterpret_cast<ArenaHeader*>(mapping_); }

std::span<std::byte> Arena::payload() const { return {mapping_ + kHeaderBytes, size_}; }

void Arena::protect() {
  if (::mprotect(mapping_, kHeaderBytes + size_, PROT_READ) != 0) {
    throw error_about(identity_.name, "cannot be protected: " + reason(errno));
  }
}

std::shared_ptr<Arena> Arena::create(const std::string& name, ArenaKind kind, std::uint64_t size,
                                     const Initialise& initialise) {
  check_name(name);
  if (size == 0 || size > kMaxBytes) {
    throw std::invalid_argument("arena '" + name + "': size must be between 1 and " + std::to_string(kMaxBytes) +
                                " bytes, got " + std::to_string(size));
  }
  const File file(::shm_open(shm_name(name).c_str(), O_CREAT | O_EXCL | O_RDWR, kOwnerOnly));
  if (!file.is_open()) {
    throw error_about(name, errno == EEXIST ? "the name is in use; remove_stale_arenas() frees the names of "
                                              "processes that died"
                                            : "cannot be created: " + reason(errno));
  }
  const ArenaIdentity identity{name, status_of(file).st_ino};
  try {
    const auto bytes = kHeaderBytes + size;
    if (bytes > free_shm_bytes() || allocate_range(file, 0, kHeaderBytes) != 0) throw no_space(name, bytes);
    std::shared_ptr<Arena> arena(new Arena(identity, map(name, file, bytes), size));
    auto& header = arena->header();
    header.version = kArenaVersion;
    header.kind = kind;
    header.size = size;
    header.creator = ProcessIdentity::current();
    std::atomic_ref(header.magic).store(kArenaMagic, std::memory_order_release);
    const int error = allocate_range(file, kHeaderBytes, bytes);
    if (error == ENOSPC) throw no_space(name, bytes);
    if (error != 0) throw error_about(name, "cannot take " + std::to_string(bytes) + " bytes: " + reason(error));
    if (initialise) initialise(arena->payload());
    std::atomic_ref(header.ready).store(1, std::memory_order_release);
    return arena;
  } catch (...) {
    identity.unlink();
    throw;
  }
}

std::shared_ptr<Arena> Arena::attach(const std::string& name, ArenaKind kind) {
  check_name(name);
  const File file(::shm_open(shm_name(name).c_str(), O_RDWR, 0));
  if (!file.is_open()) {
    throw error_about(name, errno == ENOENT ? "does not exist" : "cannot be opened: " + reason(errno));
  }
  const auto status = status_of(file);
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  if (file_bytes <= kHeaderBytes) throw error_about(name, "is not an arena (too small)");
  std::shared_ptr<Arena> arena(
      new Arena({name, status.st_ino}, map(name, file, file_bytes), file_bytes - kHeaderBytes));
  check_header(name, arena->header(), file_bytes, kind);
  return arena;
}

}  // namespace ipc
