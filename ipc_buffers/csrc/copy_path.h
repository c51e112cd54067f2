#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "memory.h"

namespace ipc {

struct CopyRun {
  const std::byte* from;
  std::byte* to;
  std::size_t bytes;
};

// How bytes get from one memory into another. Any thread may use it, several at once.
class CopyPath {
 public:
  CopyPath() = default;
  CopyPath(const CopyPath&) = delete;
  CopyPath& operator=(const CopyPath&) = delete;
  virtual ~CopyPath() = default;

  // How many bytes are worth one call.
  virtual std::size_t piece_bytes() const = 0;
  // Returns when all is there. Throws std::runtime_error.
  virtual void copy(std::span<const CopyRun> runs) = 0;
};

// Between memories of the host, or between those of GPUs. Throws ArenaError if one is here and one there.
std::shared_ptr<CopyPath> path_between(const Memory& source, const Memory& target);

}  // namespace ipc
