#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "spin.h"

namespace ipc::net {

// What a connection fails of; for people.
struct NetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An open file of the system's, closed with it.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();

  int number() const { return number_; }

 private:
  int number_;
};

// A connection that never blocks.
class Socket {
 public:
  explicit Socket(Descriptor connected) : descriptor_(std::move(connected)) {}

  int number() const { return descriptor_.number(); }
  // How many bytes the system took, or gave; nothing if it must be waited for. Throw NetError when the connection is
  // broken, and `receive` if it was closed. If more follows at once, the last few bytes wait for it.
  std::optional<std::size_t> send(std::span<const iovec> parts, bool more_follows = false) const;
  std::optional<std::size_t> receive(std::span<const iovec> parts) const;
  // Both sides see its end; it stays open for those who use it meanwhile.
  void hang_up() const;
  // Has what was not read yet thrown away when it is closed, instead of being kept for who does not read.
  void drop_unread() const;

 private:
  Descriptor descriptor_;
};

struct Readiness {
  std::uint64_t key;
  std::uint32_t events;  // of epoll
};

// Waits for many descriptors at once, and can be woken.
class Poller {
 public:
  static constexpr std::uint64_t kWoken = ~std::uint64_t{0};

  Poller();

  void add(int descriptor, std::uint64_t key, std::uint32_t events);
  void change(int descriptor, std::uint64_t key, std::uint32_t events);
  void remove(int descriptor);
  // What is ready; none when the time is over or it was woken. While waits are short it looks for a moment before it
  // sleeps.
  std::vector<Readiness> wait(std::optional<std::chrono::milliseconds> longest);
  // Any thread may call it.
  void wake() const;
  // Gives its descriptors up; nothing but wake() may be called then, in vain.
  void close();

 private:
  Descriptor epoll_;
  Descriptor bell_;
  Spin spin_;
};

iovec part_of(std::span<std::byte> bytes);
iovec part_of(std::span<const std::byte> bytes);

// Takes `bytes` off the front of the parts.
void advance(std::vector<iovec>& parts, std::size_t& first, std::size_t bytes);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace ipc::net
