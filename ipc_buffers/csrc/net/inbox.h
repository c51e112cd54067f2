#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "socket.h"

namespace ipc::net {

// Bytes of a connection that have come and are not understood yet.
class Inbox {
 public:
  // Receives up to `most` bytes; false if there are none for now. Throws as Socket::receive.
  bool fill(const Socket& socket, std::size_t most) {
    if (first_ == last_) first_ = last_ = 0;
    if (bytes_.size() < last_ + most) make_room(most);
    const auto part = part_of(std::span(bytes_).subspan(last_, most));
    const auto received = socket.receive({&part, 1});
    last_ += received.value_or(0);
    return received.has_value();
  }

  std::size_t size() const { return last_ - first_; }
  bool is_empty() const { return first_ == last_; }

  // A value that is next, left where it is; nothing until all of it has come.
  template <typename T>
  std::optional<T> peek() const {
    if (size() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + first_, sizeof value);
    return value;
  }

  // What follows a value of `head` bytes; valid until the next call of fill().
  std::span<const std::byte> after(std::size_t head, std::size_t bytes) const {
    return std::span(bytes_).subspan(first_ + head, bytes);
  }

  void drop(std::size_t bytes) { first_ += bytes; }

 private:
  void make_room(std::size_t most) {
    if (!is_empty()) std::memmove(bytes_.data(), bytes_.data() + first_, size());
    last_ -= first_;
    first_ = 0;
    if (bytes_.size() < last_ + most) bytes_.resize(last_ + most);
  }

  std::vector<std::byte> bytes_;
  std::size_t first_ = 0;
  std::size_t last_ = 0;
};

}  // namespace ipc::net
