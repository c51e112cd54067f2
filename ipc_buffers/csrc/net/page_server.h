#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server_connection.h"
#include "socket.h"
#include "transfers.h"

namespace ipc::net {

// Lets others read pages of this process's pools over TCP, straight from the pools, in a thread of its own.
class PageServer {
 public:
  // Listens at once; port 0 is any free one. Pages are told apart by `description`. `patience`: seconds. Throws
  // NetError, std::invalid_argument.
  PageServer(const std::string& host, std::uint16_t port, const std::string& token, std::string description,
             double patience);
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;
  ~PageServer();

  std::uint16_t port() const { return port_; }
  // Tells this server from others that have had or will have its port.
  std::uint64_t incarnation() const { return incarnation_; }
  // The pools that those may read who come from now on. Throws ArenaError for one that is on a GPU.
  void serve(PoolTable pools);
  // Why others were turned away since the last call, for people; only the latest ones.
  std::vector<std::string> turned_away();
  // Nobody reads anything after it returns. Idempotent.
  void shut();

 private:
  struct Client;
  using Clients = std::map<std::uint64_t, std::unique_ptr<Client>>;

  void run();
  void accept();
  void admit(Socket socket);
  bool make_room();
  void go_on(std::uint64_t key, std::uint32_t ready);
  void drop(Clients::iterator client, const std::string& why);
  void expire();
  std::shared_ptr<const Service> service();

  TimePoint::duration patience_;
  std::uint64_t incarnation_;
  std::optional<Listener> listener_;  // until it is shut
  std::uint16_t port_;
  Poller poller_;
  std::mutex mutex_;
  std::shared_ptr<const Service> service_;
  std::vector<std::string> turned_away_;
  std::atomic<bool> stopping_ = false;
  // Of the thread:
  Clients clients_;
  std::uint64_t last_key_;
  std::optional<TimePoint> deaf_until_;  // does not listen, because the system has no room
  pid_t process_;
  std::thread thread_;  // last: it sees all of the above
};

}  // namespace ipc::net
