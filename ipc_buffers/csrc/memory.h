#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "arena.h"
#include "cuda/device_memory.h"
#include "cuda/host_registration.h"
#include "file_mapping.h"
#include "place.h"

namespace ipc {

enum class Location : std::uint64_t { arena = 0, gpu = 1, file = 2 };

// Where the bytes of a Memory are, told in an arena: in that arena itself, on a GPU, or in a file.
struct MemoryDescriptor {
  std::uint64_t size;
  std::uint64_t offset;  // in the arena's payload, of bytes that are there
  Location location;
  cuda::DeviceHandle on_gpu;
  FileHandle in_file;

  std::uint64_t bytes_in_arena() const { return location == Location::arena ? size : 0; }
};

// Bytes for an arena that is about to be made: room in it, or memory of a GPU, to be kept until a Memory uses it.
class Allocation {
 public:
  // Throws std::invalid_argument for a bad size, ArenaError if the GPU does not have it.
  Allocation(const std::string& name, const Place& place, std::uint64_t size);

  // What the arena is to tell; `offset` is where room for bytes in host memory would be.
  MemoryDescriptor descriptor(std::uint64_t offset) const;

 private:
  std::uint64_t size_;
  std::unique_ptr<cuda::DeviceMemory> device_;  // null: host memory
};

// A named block of bytes in host memory or on a GPU. Its name, and what is told of it, are in host memory always: so
// are the registry, and what is left of it when its creator has died. Bytes of a file are in host memory, and nobody
// can write to them.
//
// Memory of a GPU belongs to the process that created it, and is freed when that closes its last use of it, or ends.
class Memory {
 public:
  // `manifest` is for those who attach: what its creator says of the contents.
  static std::shared_ptr<Memory> create(const std::string& name, std::uint64_t size, const Place& place,
                                        std::span<const std::byte> manifest);
  // Of `size` bytes of a file, from `offset`; takes none.
  static std::shared_ptr<Memory> map_file(const std::string& name, const std::string& path, std::uint64_t offset,
                                          std::uint64_t size, std::span<const std::byte> manifest);
  static std::shared_ptr<Memory> attach(const std::string& name);

  // Of what an arena holds or tells of. Throws ArenaError if it cannot be reached.
  Memory(std::shared_ptr<Arena> arena, const MemoryDescriptor& descriptor, std::span<const std::byte> manifest = {});

  // Of a file's bytes, which the arena tells of.
  Memory(std::shared_ptr<Arena> arena, std::unique_ptr<FileMapping> file, std::span<const std::byte> manifest);

  const ArenaIdentity& identity() const { return arena_->identity(); }
  // Whether it is found by that name, and not a part of what else has it.
  bool is_named() const { return arena_->kind() == ArenaKind::memory; }
  std::uint64_t size() const { return size_; }
  Place place() const;
  bool is_writable() const { return file_ == nullptr; }
  void* address() const;  // in its place
  std::span<const std::byte> manifest() const { return manifest_; }

  // The bytes themselves; throws ArenaError if they are on a GPU.
  std::span<std::byte> host_bytes() const;

  // Copies from and to host memory, done when they return. Throw std::out_of_range, and ArenaError if the GPU fails or
  // bytes of a file were to be written.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;
  void write(std::uint64_t offset, std::span<const std::byte> bytes);

  // Protects host memory from this process, as far as it is mapped here: whoever writes to it ends by SIGSEGV. Throws
  // ArenaError for memory of a GPU.
  void protect();

  // Page-locks host memory for copies to and from a GPU, as long as this process has it mapped here. Idempotent.
  void pin(const Place& place);

 private:
  void check_range(std::uint64_t offset, std::size_t bytes) const;

  std::shared_ptr<Arena> arena_;
  std::uint64_t size_;
  std::byte* host_ = nullptr;
  std::unique_ptr<cuda::DeviceMemory> device_;  // null: host memory
  std::unique_ptr<FileMapping> file_;           // null: bytes of no file
  std::span<const std::byte> manifest_;
  std::mutex pinning_;
  std::optional<cuda::HostRegistration> registration_;
};

}  // namespace ipc
