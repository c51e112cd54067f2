#include "page_server.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "patience.h"

namespace ipc::net {

struct PageServer::Client {
  ServerConnection connection;
  std::uint32_t awaited = EPOLLIN;
};

namespace {

constexpr std::size_t kMostClients = 1024;

}  // namespace

PageServer::PageServer(double patience) : patience_(parse_patience(patience)), process_(::getpid()) {
  thread_ = std::thread([this] { run(); });
}

PageServer::~PageServer() {
  shut();
  if (thread_.joinable()) thread_.detach();  // a fork has no such thread
}

void PageServer::serve(Socket client, std::vector<ServedPool> pools) {
  for (const auto& [name, pool] : pools) {
    if (pool != nullptr) pool->data()->host_bytes();
  }
  auto served = std::make_unique<Client>(Client{ServerConnection(std::move(client), std::move(pools), patience_)});
  {
    const std::lock_guard lock(mutex_);
    if (count_ == kMostClients) throw NetError("comes when " + std::to_string(count_) + " others are served");
    ++count_;
    fresh_.push_back(std::move(served));
  }
  poller_.wake();
}

void PageServer::shut() {
  if (process_ != ::getpid()) return;
  stopping_ = true;
  poller_.wake();
  if (thread_.joinable()) thread_.join();
  poller_.close();
  const std::lock_guard lock(mutex_);
  fresh_.clear();
}

void PageServer::run() {
  // Often enough that nobody takes much longer than he may.
  const auto tick = std::chrono::duration_cast<std::chrono::milliseconds>(patience_ / 4) + std::chrono::milliseconds(1);
  while (!stopping_) {
    for (const auto& [key, events] : poller_.wait(clients_.empty() ? std::nullopt : std::optional(tick))) {
      go_on(key, events);
    }
    adopt();
    expire();
  }
  for (const auto& [key, client] : clients_) client->connection.socket().hang_up();
  clients_.clear();
}

void PageServer::adopt() {
  std::vector<std::unique_ptr<Client>> fresh;
  {
    const std::lock_guard lock(mutex_);
    fresh.swap(fresh_);
  }
  for (auto& client : fresh) {
    const auto key = ++last_key_;
    const auto number = client->connection.socket().number();
    const auto place = clients_.emplace(key, std::move(client)).first;
    try {
      poller_.add(number, key, EPOLLIN);
    } catch (const NetError&) {  // the system has no room for one more
      drop(place);
    }
  }
}

void PageServer::go_on(std::uint64_t key, std::uint32_t ready) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  auto& [connection, awaited] = *found->second;
  try {
    connection.go_on(ready);
    const auto wanted = connection.awaited();
    if (wanted != awaited) poller_.change(connection.socket().number(), key, wanted);
    awaited = wanted;
  } catch (const std::exception&) {  // it sees its connection's end
    drop(found);
  }
}

void PageServer::drop(Clients::iterator client) {
  poller_.remove(client->second->connection.socket().number());
  clients_.erase(client);
  const std::lock_guard lock(mutex_);
  --count_;
}

void PageServer::expire() {
  const auto time = now();
  for (auto client = clients_.begin(); client != clients_.end();) {
    const auto this_one = client++;
    if (this_one->second->connection.deadline() >= time) continue;
    this_one->second->connection.socket().drop_unread();
    drop(this_one);
  }
}

}  // namespace ipc::net
