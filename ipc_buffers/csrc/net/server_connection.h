#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "futex.h"
#include "inbox.h"
#include "page_reply.h"
#include "protocol.h"
#include "socket.h"

namespace ipc::net {

// A client that was introduced, as a server sees it. Everything is done by one thread, and never waits.
//
// What a client can make a server keep is bounded, and so is the time that it may take to send a request or to receive
// a frame. Whatever is wrong with it is a NetError or std::invalid_argument, which ends this connection and no other.
class ServerConnection {
 public:
  // `pools` are in the order in which the client numbers them.
  ServerConnection(Socket socket, std::vector<ServedPool> pools, TimePoint::duration patience);

  const Socket& socket() const { return socket_; }
  // When it will have taken too long.
  TimePoint deadline() const;
  // What to wait for, as epoll has it.
  std::uint32_t awaited() const;

  // Receives what has come, and sends what is to be sent, up to a share, so that others have their turn.
  void go_on(std::uint32_t ready);

 private:
  void receive();
  void understand();
  bool take_request();
  void forget(std::uint64_t transfer);
  void send();
  bool gather();
  void put(std::span<const std::byte> bytes);
  bool is_behind() const;

  Socket socket_;
  std::vector<ServedPool> pools_;
  TimePoint::duration patience_;
  Inbox inbox_;
  TimePoint receiving_since_ = now();
  std::deque<PageReply> replies_;
  std::size_t kept_bytes_ = 0;  // of the requests that are being answered
  std::deque<std::size_t> request_bytes_;
  // What is being sent: parts from `next_part_` on, of small things that lie in `words_` and of pages.
  std::deque<std::vector<std::byte>> words_;
  std::vector<iovec> parts_;
  std::size_t next_part_ = 0;
  bool frame_is_of_first_ = false;  // pages of the first reply are among the parts
  bool forgotten_ = false;          // nobody waits for the first reply any more
  bool blocked_ = false;
  TimePoint sending_since_ = now();
};

}  // namespace ipc::net
