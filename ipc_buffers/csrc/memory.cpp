#include "memory.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace ipc {
namespace {

// At the start of the arena of a Memory with a name of its own; the manifest follows, then bytes in host memory.
struct Layout {
  MemoryDescriptor memory;
  std::uint64_t manifest_bytes;
};

std::uint64_t data_offset(std::uint64_t manifest_bytes) {
  return (sizeof(Layout) + manifest_bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

ArenaError error_about(const std::string& name, const std::string& text) {
  return ArenaError("arena '" + name + "': " + text);
}

// Tells which arena it was that the driver has refused, or whose file cannot be reached.
template <typename Call>
auto in_arena(const std::string& name, const Call& call) {
  try {
    return call();
  } catch (const native::cuda::CudaError& error) {
    throw error_about(name, error.what());
  } catch (const ArenaError& error) {
    throw error_about(name, error.what());
  }
}

ArenaError damaged(const Arena& arena) {
  return error_about(arena.identity().name, "is damaged: what it says of its memory does not match its size");
}

std::shared_ptr<Arena> create_arena(const std::string& name, const Layout& layout,
                                    std::span<const std::byte> manifest) {
  const auto initialise = [&](std::span<std::byte> payload) {
    std::memcpy(payload.data(), &layout, sizeof layout);
    std::copy(manifest.begin(), manifest.end(), payload.begin() + sizeof layout);
  };
  return Arena::create(name, ArenaKind::memory, data_offset(manifest.size()) + layout.memory.bytes_in_arena(),
                       initialise);
}

std::span<const std::byte> manifest_of(const Arena& arena, const Layout& layout) {
  return arena.payload().subspan(sizeof layout, layout.manifest_bytes);
}

std::unique_ptr<cuda::DeviceMemory> open(const Arena& arena, const cuda::DeviceHandle& handle) {
  const auto& name = arena.identity().name;
  if (!arena.creator().is_alive()) {
    throw error_about(name, "process " + std::to_string(arena.creator().pid) +
                                ", which created it, has ended, and its memory on a GPU with it; "
                                "remove_stale_arenas() removes what is left");
  }
  return in_arena(name, [&] { return cuda::DeviceMemory::open(handle); });
}

}  // namespace

Allocation::Allocation(const std::string& name, const Place& place, std::uint64_t size) : size_(size) {
  if (size == 0 || size > Arena::kMaxBytes) {
    throw std::invalid_argument("memory '" + name + "': size must be between 1 and " +
                                std::to_string(Arena::kMaxBytes) + " bytes, got " + std::to_string(size));
  }
  if (place.gpu) device_ = in_arena(name, [&] { return cuda::DeviceMemory::allocate(*place.gpu, size); });
}

MemoryDescriptor Allocation::descriptor(std::uint64_t offset) const {
  if (device_ != nullptr) return {size_, 0, Location::gpu, device_->handle(), {}};
  return {size_, offset, Location::arena, {}, {}};
}

std::shared_ptr<Memory> Memory::create(const std::string& name, std::uint64_t size, const Place& place,
                                       std::span<const std::byte> manifest) {
  const Allocation allocation(name, place, size);
  const Layout layout{allocation.descriptor(data_offset(manifest.size())), manifest.size()};
  auto arena = create_arena(name, layout, manifest);
  const auto told = manifest_of(*arena, layout);
  return std::make_shared<Memory>(std::move(arena), layout.memory, told);
}

std::shared_ptr<Memory> Memory::map_file(const std::string& name, const std::string& path, std::uint64_t offset,
                                         std::uint64_t size, std::span<const std::byte> manifest) {
  auto mapping = in_arena(name, [&] { return FileMapping::of(path, offset, size); });
  const Layout layout{{size, 0, Location::file, {}, mapping->handle()}, manifest.size()};
  auto arena = create_arena(name, layout, manifest);
  const auto told = manifest_of(*arena, layout);
  return std::make_shared<Memory>(std::move(arena), std::move(mapping), told);
}

std::shared_ptr<Memory> Memory::attach(const std::string& name) {
  auto arena = Arena::attach(name, ArenaKind::memory);
  const auto payload = arena->payload();
  if (payload.size() < sizeof(Layout)) throw damaged(*arena);
  const auto& layout = *reinterpret_cast<const Layout*>(payload.data());
  if (layout.manifest_bytes > payload.size() - sizeof layout) throw damaged(*arena);
  const auto manifest = manifest_of(*arena, layout);
  const auto& [size, offset, location, on_gpu, in_file] = layout.memory;
  if (location != Location::file) return std::make_shared<Memory>(std::move(arena), layout.memory, manifest);
  auto mapping = in_arena(name, [&] { return FileMapping::find(in_file, arena->creator(), size); });
  return std::make_shared<Memory>(std::move(arena), std::move(mapping), manifest);
}

Memory::Memory(std::shared_ptr<Arena> arena, std::unique_ptr<FileMapping> file, std::span<const std::byte> manifest)
    : arena_(std::move(arena)),
      size_(file->bytes().size()),
      host_(file->bytes().data()),
      file_(std::move(file)),
      manifest_(manifest) {}

Memory::Memory(std::shared_ptr<Arena> arena, const MemoryDescriptor& descriptor, std::span<const std::byte> manifest)
    : arena_(std::move(arena)), size_(descriptor.size), manifest_(manifest) {
  const auto payload = arena_->payload();
  const auto bytes = descriptor.bytes_in_arena();
  if (descriptor.offset > payload.size() || bytes > payload.size() - descriptor.offset) throw damaged(*arena_);
  if (descriptor.location == Location::gpu) {
    device_ = open(*arena_, descriptor.on_gpu);
  } else {
    host_ = payload.data() + descriptor.offset;
  }
}

Place Memory::place() const { return device_ != nullptr ? Place{device_->gpu()} : Place{}; }

void* Memory::address() const { return device_ != nullptr ? device_->address() : host_; }

std::span<std::byte> Memory::host_bytes() const {
  if (device_ != nullptr) {
    throw error_about(identity().name, "is on " + place().text() +
                                           ", not in host memory; look at it through __dlpack__ there, or copy with "
                                           "read() and write()");
  }
  return {host_, size_};
}

void Memory::check_range(std::uint64_t offset, std::size_t bytes) const {
  if (offset > size_ || bytes > size_ - offset) {
    throw std::out_of_range(std::to_string(bytes) + " bytes from " + std::to_string(offset) + " are not within the " +
                            std::to_string(size_) + " of memory '" + identity().name + "'");
  }
}

void Memory::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  check_range(offset, bytes.size());
  if (device_ != nullptr) return in_arena(identity().name, [&] { device_->read(offset, bytes); });
  std::memcpy(bytes.data(), host_ + offset, bytes.size());
}

void Memory::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  check_range(offset, bytes.size());
  if (device_ != nullptr) return in_arena(identity().name, [&] { device_->write(offset, bytes); });
  if (!is_writable()) throw error_about(identity().name, "shows bytes of a file, which nobody can write to");
  std::memcpy(host_ + offset, bytes.data(), bytes.size());
}

void Memory::protect() {
  host_bytes();       // throws for memory of a GPU
  arena_->protect();  // bytes of a file are protected from the start
}

void Memory::pin(const Place& place) {
  if (!place.gpu)
    throw std::invalid_argument("pinned memory is for copies to and from a GPU, not '" + place.text() + "'");
  const auto bytes = host_bytes();
  const std::lock_guard lock(pinning_);
  if (!registration_) in_arena(identity().name, [&] { registration_.emplace(bytes, *place.gpu); });
}

}  // namespace ipc
