#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client_connection.h"
#include "protocol.h"
#include "socket.h"
#include "transfers.h"

namespace ipc::net {

// Reads pages from servers over TCP, straight into pages of this process, in a thread of its own.
//
// There is one connection to a server, made by somebody else when it is first asked and again after it has broken, and
// any number of transfers on it. What a server can do wrong, or fail to do in time, ends those on its connection with
// an error.
class PageClient {
 public:
  // `patience`: seconds that a server may take to answer, or for a frame. Throws std::invalid_argument.
  PageClient(Bell bell, double patience);
  PageClient(const PageClient&) = delete;
  PageClient& operator=(const PageClient&) = delete;
  ~PageClient();

  // The pools that are read into; to be called before read(), once. Throws ArenaError for one that is on a GPU.
  void use(PoolTable pools);
  struct Begun {
    std::uint64_t transfer;
    bool is_first;  // nobody is connecting to this server yet: connect() or fail() must follow
  };
  // Begins to read from a server, whose address may be any text. Throws as check_copies.
  Begun read(const std::string& server, const std::vector<PageCopy>& copies);
  // Sends what waits for this server, which has been introduced. `name` is for people.
  void connect(const std::string& server, std::string name, Socket connected);
  // Ends all transfers from a server, with a line that says why.
  void fail(const std::string& server, const std::string& why);
  // Nothing is written after it returns, and nothing told of the transfer.
  void close(std::uint64_t transfer);
  // Drops what is under way; nothing is written after it returns. Idempotent.
  void shut();

  Completions& completions() { return completions_; }

 private:
  struct Transfer;
  using ConnectionPtr = std::shared_ptr<ClientConnection>;
  using Lock = std::unique_lock<std::mutex>;

  static Transfer plan(const PoolTable& pools, const std::vector<PageCopy>& copies);
  void run();
  void adopt();
  void go_on(const ConnectionPtr& connection, std::uint32_t ready);
  void expire();
  void drop(const ConnectionPtr& connection, const std::string& why);
  void end_all(const ConnectionPtr& connection, const std::string& why);
  void flush(const ConnectionPtr& connection, Lock& lock);
  bool receive(const ConnectionPtr& connection);
  bool is_asked(const ClientConnection& connection);
  void take_frame(ClientConnection& connection);
  void end_frame(ClientConnection& connection);
  void end(std::uint64_t number, ClientConnection& connection, std::string error);
  Transfer* find(std::uint64_t transfer, const ClientConnection& connection);

  TimePoint::duration patience_;
  Completions completions_;
  Poller poller_;
  std::mutex mutex_;
  std::condition_variable rested_;  // the thread has ended writing to a transfer's pages
  PoolTable pools_;
  std::map<std::string, ConnectionPtr> connections_;  // by servers
  std::map<std::uint64_t, Transfer> transfers_;
  std::uint64_t last_ = 0;
  std::uint64_t written_ = 0;  // the transfer whose pages the thread is writing to
  bool stopping_ = false;
  // Of the thread:
  std::map<std::uint64_t, ConnectionPtr> polled_;
  std::uint64_t last_key_ = 0;
  pid_t process_;
  std::thread thread_;  // last: it sees all of the above
};

}  // namespace ipc::net
