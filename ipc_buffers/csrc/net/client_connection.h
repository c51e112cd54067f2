#pragma once

#include <sys/epoll.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "futex.h"
#include "inbox.h"
#include "protocol.h"
#include "socket.h"

namespace ipc::net {

// Where a server listens, and which of those that have been there it is.
struct ServerAddress {
  std::string host;  // numeric
  std::uint16_t port = 0;
  std::uint64_t incarnation = 0;

  bool operator<(const ServerAddress& other) const {
    return std::tie(host, port, incarnation) < std::tie(other.host, other.port, other.incarnation);
  }
};

// A connection to a server, as a client sees it. Its lock is the client's; `the thread` is the client's, too.
class ClientConnection {
 public:
  explicit ClientConnection(ServerAddress server) : address(std::move(server)) {}

  enum class Phase : std::uint8_t { connecting, greeting, introduction, open };

  ServerAddress address;
  // Set by the thread before anybody else uses it.
  std::optional<Socket> socket;

  // Under the client's lock:
  std::deque<std::vector<std::byte>> waiting;  // requests, until the server is known
  std::deque<std::vector<std::byte>> out;
  std::size_t sent = 0;  // of the first of them
  bool is_open = false;
  bool sending = false;  // somebody is at it
  bool blocked = false;  // the system takes no more for now
  std::size_t under_way = 0;
  TimePoint deadline;

  // Of the thread:
  std::uint64_t key = 0;
  std::uint32_t awaited = EPOLLOUT;
  Phase phase = Phase::connecting;
  Nonce ours = random_nonce();
  Inbox inbox;  // until it is open
  Nonce theirs{};
  Frame frame{};
  Frame frame_next{};
  std::size_t frame_known = 0;  // bytes of the next frame's head that have come
  std::size_t frame_left = 0;   // bytes of this frame that have not
  std::vector<std::byte> text;  // of a failure
  std::vector<iovec> parts;
  std::vector<std::byte> scratch;

  // For people.
  std::string name() const { return address.host + " port " + std::to_string(address.port); }

  // What to wait for, as epoll has it.
  std::uint32_t wanted() const;

  // What is to be sent to introduce this side; true if it knows the server now.
  bool understand(std::span<const std::byte> token, const Layout& layout, std::vector<std::byte>& answer);

 private:
  bool take_greeting(std::span<const std::byte> token, const Layout& layout, std::vector<std::byte>& answer);
  bool take_introduction(std::span<const std::byte> token, const Layout& layout);
};

}  // namespace ipc::net
