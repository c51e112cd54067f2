#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "choices.h"
#include "net/socket.h"

namespace ipc::fuzz {

// A connection: our end is the core's, their end is the fuzzer's.
struct Ends {
  net::Socket ours;
  net::Descriptor theirs;

  static Ends make() {
    std::array<int, 2> pair{};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) == 0);
    return {net::Socket(net::Descriptor(pair[0])), net::Descriptor(pair[1])};
  }
};

// Bytes of messages, as a peer writes them that keeps to the protocol up to a point.
class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    const auto bytes = net::bytes_of(value);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  void fill(std::size_t count, std::byte value) { bytes_.insert(bytes_.end(), count, value); }

  void garbage(Choices& choices) {
    for (auto left = choices.between(0, 40); left > 0; --left) bytes_.push_back(std::byte{choices.byte()});
  }

  // Loses the last few bytes.
  void cut(Choices& choices) {
    const auto lost = static_cast<std::size_t>(choices.between(0, 20));
    bytes_.resize(bytes_.size() - std::min(lost, bytes_.size()));
  }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace ipc::fuzz
