// Where the bytes of a video come from. Reads are positional, so any number of readers share one source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace flashcodec {

class Source {
 public:
  Source() = default;
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  virtual const std::string& name() const = 0;
  virtual int64_t size() const = 0;
  // Reads up to out.size() bytes at `offset`; returns how many, 0 at the end. Throws on an I/O error.
  virtual size_t read_at(int64_t offset, std::span<uint8_t> out) = 0;
};

using SourcePtr = std::shared_ptr<Source>;

// A regular file that is opened for reading; the source closes it. Throws DecodeError if its size cannot be told.
SourcePtr open_descriptor(int fd, std::string name);

// The bytes stay the owner's; `owner` keeps them alive.
SourcePtr open_memory(std::span<const uint8_t> bytes, std::shared_ptr<void> owner, std::string name);

}  // namespace flashcodec
