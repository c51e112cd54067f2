#pragma once

#include <sys/epoll.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "futex.h"
#include "protocol.h"
#include "socket.h"

namespace ipc::net {

// A connection to a server, as a client sees it. Its lock is the client's; `the thread` is the client's, too.
struct ClientConnection {
  explicit ClientConnection(std::string address) : server(std::move(address)) {}

  const std::string server;
  // Set once, by whoever has connected it, under the client's lock; nobody uses the socket before.
  std::optional<Socket> socket;
  std::string name;  // for people

  // Under the client's lock:
  std::deque<std::vector<std::byte>> out;  // requests
  std::size_t sent = 0;                    // of the first of them
  bool sending = false;                    // somebody is at it
  bool blocked = false;                    // the system takes no more for now
  std::size_t under_way = 0;
  TimePoint deadline;

  // Of the thread:
  std::uint64_t key = 0;  // 0: not known to it
  std::uint32_t awaited = EPOLLIN;
  Frame frame{};
  Frame frame_next{};
  std::size_t frame_known = 0;  // bytes of the next frame's head that have come
  std::size_t frame_left = 0;   // bytes of this frame that have not
  std::vector<std::byte> text;  // of a failure
  std::vector<iovec> parts;
  std::vector<std::byte> scratch;

  // What to wait for, as epoll has it.
  std::uint32_t wanted() const { return EPOLLIN | (blocked ? std::uint32_t{EPOLLOUT} : 0U); }
};

}  // namespace ipc::net
