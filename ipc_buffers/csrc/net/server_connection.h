#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "futex.h"
#include "inbox.h"
#include "page_reply.h"
#include "protocol.h"
#include "socket.h"

namespace ipc::net {

// What a server gives to those who show that they have the token.
struct Service {
  std::vector<std::byte> token;
  std::string description;
  std::uint64_t incarnation;
  PoolTable pools;
};

// A client as a server sees it. Everything is done by one thread, and never waits.
//
// What a client can make a server keep is bounded, and so is the time that it may take for what it began: to introduce
// itself, to send a request, to receive a frame. Whatever is wrong with it is a NetError or std::invalid_argument,
// which ends this connection and no other.
class ServerConnection {
 public:
  ServerConnection(Socket socket, TimePoint::duration patience);

  const Socket& socket() const { return socket_; }
  bool is_introduced() const { return state_ == State::open; }
  // When it will have taken too long.
  TimePoint deadline() const;
  // What to wait for, as epoll has it.
  std::uint32_t awaited() const;

  // Receives what has come, and sends what is to be sent, up to a share, so that others have their turn.
  void go_on(const std::shared_ptr<const Service>& service, std::uint32_t ready);

 private:
  enum class State : std::uint8_t { greeting, introduction, open };

  void receive();
  void understand(const std::shared_ptr<const Service>& service);
  bool take_greeting();
  bool take_introduction(const std::shared_ptr<const Service>& service);
  bool take_request();
  void forget(std::uint64_t transfer);
  void send();
  bool gather();
  void put(std::span<const std::byte> bytes);
  bool is_behind() const;

  Socket socket_;
  TimePoint::duration patience_;
  State state_ = State::greeting;
  Inbox inbox_;
  TimePoint receiving_since_ = now();
  std::shared_ptr<const Service> service_;  // once introduced
  std::optional<Layout> layout_;            // the client's
  Nonce ours_ = random_nonce();
  Nonce theirs_{};
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
