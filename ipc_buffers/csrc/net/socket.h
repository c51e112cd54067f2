#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "futex.h"

namespace ipc::net {

// What a connection, or a server, fails of; for people.
struct NetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What the system says of an error number.
std::string describe_error(int number);

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

// A connection by TCP that never blocks and sends at once what it is given.
class Socket {
 public:
  // Begins to connect to a numeric address. Throws NetError.
  static Socket connect(const std::string& host, std::uint16_t port);
  explicit Socket(Descriptor connected);

  int number() const { return descriptor_.number(); }
  // Throws NetError if connecting has failed.
  void check_connected() const;
  // Who is at the other end, as an address and a port.
  std::string peer() const;
  // Keeps little on the way to a peer of this machine, so that it stays in the processor's caches. To others, the
  // system keeps as much as the network's delay asks for.
  void keep_close() const;
  // How many bytes the system took, or gave; nothing if it must be waited for. Throw NetError when the connection is
  // broken, and `receive` if it was closed.
  std::optional<std::size_t> send(std::span<const iovec> parts) const;
  std::optional<std::size_t> receive(std::span<const iovec> parts) const;
  // Both sides see its end; it stays open for those who use it meanwhile.
  void hang_up() const;
  // Has what was not read yet thrown away when it is closed, instead of being kept for who does not read.
  void drop_unread() const;

 private:
  Descriptor descriptor_;
};

// A listening socket.
class Listener {
 public:
  // Port 0: any free one. Throws NetError.
  Listener(const std::string& host, std::uint16_t port);

  int number() const { return descriptor_.number(); }
  std::uint16_t port() const;
  // Nothing if nobody waits, or the system has no room for one more, which is told by `is_full`.
  std::optional<Socket> accept(bool& is_full) const;

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
  // What is ready; none when the time is over or it was woken.
  std::vector<Readiness> wait(std::optional<std::chrono::milliseconds> longest);
  // Any thread may call it.
  void wake() const;
  // Gives its descriptors up; nothing but wake() may be called then, in vain.
  void close();

 private:
  Descriptor epoll_;
  Descriptor bell_;
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
