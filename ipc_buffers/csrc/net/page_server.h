#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server_connection.h"
#include "socket.h"

namespace ipc::net {

// Lets others read pages of this process's pools over TCP, straight from the pools, in a thread of its own.
class PageServer {
 public:
  // `patience`: seconds that a client may take to send a request, or to receive a frame. Throws std::invalid_argument.
  explicit PageServer(double patience);
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;
  ~PageServer();

  // Serves a client that was introduced, from `pools`, which are in the order in which it numbers them. Throws NetError
  // if there are too many clients, ArenaError for a pool that is on a GPU.
  void serve(Socket client, std::vector<ServedPool> pools);
  // Nobody reads anything after it returns. Idempotent.
  void shut();

 private:
  struct Client;
  using Clients = std::map<std::uint64_t, std::unique_ptr<Client>>;

  void run();
  void adopt();
  void go_on(std::uint64_t key, std::uint32_t ready);
  void drop(Clients::iterator client);
  void expire();

  TimePoint::duration patience_;
  Poller poller_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Client>> fresh_;  // not seen by the thread yet
  std::size_t count_ = 0;                       // of all clients
  std::atomic<bool> stopping_ = false;
  // Of the thread:
  Clients clients_;
  std::uint64_t last_key_ = 0;
  pid_t process_;
  std::thread thread_;  // last: it sees all of the above
};

}  // namespace ipc::net
