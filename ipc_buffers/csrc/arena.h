#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "process_identity.h"

namespace ipc {

struct ArenaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class ArenaKind : std::uint32_t { plain = 1, page_pool = 2, message_queue = 3, memory = 4, collective = 5 };

std::string_view describe(ArenaKind kind);

// Which file in /dev/shm: the inode tells an arena from a later one of the same name.
struct ArenaIdentity {
  std::string name;
  ino_t inode = 0;

  // Removes the name if it still is this arena's; memory goes back when the last mapping does.
  void unlink() const;
};

// What the first page of every arena holds; its creator's identity is there before any memory is taken, so
// that whatever a killed creator leaves behind can be recognised.
struct ArenaHeader {
  std::uint64_t magic;
  std::uint32_t version;
  ArenaKind kind;
  std::uint64_t size;
  ProcessIdentity creator;
  std::uint32_t ready;  // 1 once the memory is there and initialised
};

// A mapped region of POSIX shared memory, shared by name; passive, never unlinked by itself.
class Arena {
 public:
  using Initialise = std::function<void(std::span<std::byte>)>;

  static constexpr std::size_t kAlignment = 4096;  // of the payload
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 46;
  static constexpr std::size_t kMaxName = 200;

  // Takes all memory at once, so that a later access cannot fail; `initialise` runs before others can attach.
  static std::shared_ptr<Arena> create(const std::string& name, ArenaKind kind, std::uint64_t size,
                                       const Initialise& initialise = {});
  static std::shared_ptr<Arena> attach(const std::string& name, ArenaKind kind);

  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  const ArenaIdentity& identity() const { return identity_; }
  ArenaKind kind() const { return header().kind; }
  const ProcessIdentity& creator() const { return header().creator; }
  std::span<std::byte> payload() const;
  // From now on a write through this mapping ends the process by SIGSEGV. Throws ArenaError if the kernel refuses.
  void protect();

 private:
  Arena(ArenaIdentity identity, std::byte* mapping, std::uint64_t size);

  ArenaHeader& header() const;

  ArenaIdentity identity_;
  std::byte* mapping_;
  std::uint64_t size_;
};

}  // namespace ipc
