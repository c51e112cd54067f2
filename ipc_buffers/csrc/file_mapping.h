#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "arena_file.h"
#include "process_identity.h"

namespace ipc {

// What another process needs to find bytes of a file; plain data, for it travels in shared memory.
struct FileHandle {
  std::int64_t descriptor;  // of the process that opened it by its path
  std::uint64_t device, inode;
  std::uint64_t offset;  // of the first byte
};

// Bytes of a file, mapped for reading: the pages are those of the kernel's file cache, which all processes share.
//
// The process that opened the file by its path keeps it open. Others find it there, whatever becomes of the path.
class FileMapping {
 public:
  // Maps `size` bytes from `offset`, a multiple of Arena::kAlignment. Throws ArenaError.
  static std::unique_ptr<FileMapping> of(const std::string& path, std::uint64_t offset, std::uint64_t size);
  // Maps what `opener` has open. Throws ArenaError if it has ended, or has another file there.
  static std::unique_ptr<FileMapping> find(const FileHandle& handle, const ProcessIdentity& opener, std::uint64_t size);

  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;
  ~FileMapping();

  const FileHandle& handle() const { return handle_; }
  std::span<std::byte> bytes() const { return bytes_; }  // a write ends the process by SIGSEGV

 private:
  FileMapping(const std::string& path, std::uint64_t offset, std::uint64_t size);

  File file_;
  FileHandle handle_{};
  std::span<std::byte> bytes_;
};

}  // namespace ipc
