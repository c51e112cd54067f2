#include "page_server.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "patience.h"

namespace ipc::net {

struct PageServer::Client {
  ServerConnection connection;
  std::uint32_t awaited;
};

namespace {

constexpr std::uint64_t kListener = 0;
constexpr std::size_t kMostClients = 1024;
constexpr std::size_t kMostStrangers = 64;
constexpr std::size_t kMostTold = 16;

}  // namespace

PageServer::PageServer(const std::string& host, std::uint16_t port, const std::string& token, std::string description,
                       double patience)
    : patience_(parse_patience(patience)),
      incarnation_(random_number()),
      listener_(Listener(host, port)),
      port_(listener_->port()),
      service_(std::make_shared<Service>(Service{parse_token(token), std::move(description), incarnation_, {}})),
      last_key_(kListener),
      process_(::getpid()) {
  static_cast<void>(Layout(service_->description, {}));  // throws for a description that is none
  poller_.add(listener_->number(), kListener, EPOLLIN);
  thread_ = std::thread([this] { run(); });
}

PageServer::~PageServer() {
  shut();
  if (thread_.joinable()) thread_.detach();  // a fork has no such thread
}

void PageServer::serve(PoolTable pools) {
  for (const auto& [name, pool] : pools) pool->data()->host_bytes();
  const std::lock_guard lock(mutex_);
  static_cast<void>(Layout(service_->description, pools));  // throws for names that are none
  auto service = *service_;
  service.pools = std::move(pools);
  service_ = std::make_shared<Service>(std::move(service));
}

std::shared_ptr<const Service> PageServer::service() {
  const std::lock_guard lock(mutex_);
  return service_;
}

std::vector<std::string> PageServer::turned_away() {
  const std::lock_guard lock(mutex_);
  return std::exchange(turned_away_, {});
}

void PageServer::shut() {
  if (process_ != ::getpid()) return;
  stopping_ = true;
  poller_.wake();
  if (thread_.joinable()) thread_.join();
  poller_.close();
}

void PageServer::run() {
  // Often enough that nobody takes much longer than he may.
  const auto tick = std::chrono::duration_cast<std::chrono::milliseconds>(patience_ / 4) + std::chrono::milliseconds(1);
  while (!stopping_) {
    const bool idle = clients_.empty() && !deaf_until_;
    for (const auto& [key, events] : poller_.wait(idle ? std::nullopt : std::optional(tick))) {
      if (key == kListener) {
        accept();
      } else {
        go_on(key, events);
      }
    }
    expire();
  }
  for (const auto& [key, client] : clients_) client->connection.socket().hang_up();
  clients_.clear();
  listener_.reset();  // so that nobody waits for an answer
}

void PageServer::accept() {
  bool is_full = false;
  while (auto socket = listener_->accept(is_full)) admit(std::move(*socket));
  if (!is_full) return;
  poller_.change(listener_->number(), kListener, 0);  // it would be told of them again and again
  deaf_until_ = now() + patience_ / 4;
}

void PageServer::admit(Socket socket) {
  if (!make_room()) return;
  const auto key = ++last_key_;
  try {
    auto client = std::make_unique<Client>(Client{ServerConnection(std::move(socket), patience_), EPOLLIN});
    poller_.add(client->connection.socket().number(), key, EPOLLIN);
    clients_.emplace(key, std::move(client));
  } catch (const NetError&) {  // the system has no room for one more
  }
}

// Those who have not said who they are make room for each other, the first ones first; others stay.
bool PageServer::make_room() {
  const auto is_stranger = [](const auto& client) { return !client.second->connection.is_introduced(); };
  const auto strangers = static_cast<std::size_t>(std::ranges::count_if(clients_, is_stranger));
  if (strangers < kMostStrangers && clients_.size() < kMostClients) return true;
  const auto first = std::ranges::find_if(clients_, is_stranger);
  if (first == clients_.end()) return false;
  drop(first, "did not say who it is while others came");
  return true;
}

void PageServer::go_on(std::uint64_t key, std::uint32_t ready) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  auto& [connection, awaited] = *found->second;
  try {
    connection.go_on(service(), ready);
    const auto wanted = connection.awaited();
    if (wanted != awaited) poller_.change(connection.socket().number(), key, wanted);
    awaited = wanted;
  } catch (const std::exception& error) {
    drop(found, error.what());
  }
}

void PageServer::drop(Clients::iterator client, const std::string& why) {
  const auto& connection = client->second->connection;
  if (!connection.is_introduced()) {
    const std::lock_guard lock(mutex_);
    if (turned_away_.size() == kMostTold) turned_away_.erase(turned_away_.begin());
    turned_away_.push_back(connection.socket().peer() + " " + why);
  }
  poller_.remove(connection.socket().number());
  clients_.erase(client);
}

void PageServer::expire() {
  const auto time = now();
  if (deaf_until_ && *deaf_until_ < time) {
    poller_.change(listener_->number(), kListener, EPOLLIN);
    deaf_until_.reset();
  }
  for (auto client = clients_.begin(); client != clients_.end();) {
    const auto this_one = client++;
    if (this_one->second->connection.deadline() >= time) continue;
    this_one->second->connection.socket().drop_unread();
    drop(this_one, "took too long");
  }
}

}  // namespace ipc::net
