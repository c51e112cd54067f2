#include "page_client.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "patience.h"

namespace ipc::net {
namespace {

constexpr std::size_t kShare = 8 << 20;     // of bytes to receive before other connections have their turn
constexpr std::size_t kMostPieces = 512;    // at once; the system takes 1024
constexpr std::size_t kScratch = 64 << 10;  // for bytes that nobody wants any more

}  // namespace

struct PageClient::Transfer {
  ConnectionPtr connection;
  std::vector<std::shared_ptr<PagePool>> pools;  // kept mapped
  std::vector<Extent> extents;                   // to be written
  std::uint64_t bytes = 0;
  std::uint64_t left = 0;
  TimePoint begun = now();
  std::size_t extent = 0, offset = 0;  // what is written next

  void append(std::vector<iovec>& parts, std::size_t most) const {
    for (std::size_t i = extent, at = offset; i < extents.size() && most > 0 && parts.size() < kMostPieces; ++i) {
      const auto bytes_here = std::min(extents[i].bytes - at, most);
      parts.push_back({extents[i].at + at, bytes_here});
      most -= bytes_here;
      at = 0;
    }
  }

  void advance(std::size_t count) {
    left -= count;
    for (offset += count; extent < extents.size() && offset >= extents[extent].bytes; ++extent) {
      offset -= extents[extent].bytes;
    }
  }
};

PageClient::PageClient(Bell bell, double patience)
    : patience_(parse_patience(patience)), completions_(std::move(bell)), process_(::getpid()) {
  thread_ = std::thread([this] { run(); });
}

PageClient::~PageClient() {
  shut();
  if (thread_.joinable()) thread_.detach();  // a fork has no such thread
}

void PageClient::use(PoolTable pools) {
  for (const auto& [name, pool] : pools) pool->data()->host_bytes();
  const std::lock_guard lock(mutex_);
  if (!pools_.empty()) throw std::invalid_argument("pools have been registered already");
  pools_ = std::move(pools);
}

// What a transfer is to write, and for how long its pools are kept.
PageClient::Transfer PageClient::plan(const PoolTable& pools, const std::vector<PageCopy>& copies) {
  check_copies(pools, copies);
  Transfer transfer;
  for (const auto& copy : copies) {
    const auto& pool = pools.at(copy.pool);
    const auto extents = extents_of(*pool, copy.into, kMostFrame);
    transfer.extents.insert(transfer.extents.end(), extents.begin(), extents.end());
    transfer.bytes += copy.into.size() * pool->page_bytes();
    transfer.pools.push_back(pool);
  }
  transfer.left = transfer.bytes;
  return transfer;
}

PageClient::Begun PageClient::read(const std::string& server, const std::vector<PageCopy>& copies) {
  if (process_ != ::getpid()) throw std::runtime_error("this carrier belongs to the parent process");
  Lock lock(mutex_);
  const auto pools = pools_;
  lock.unlock();
  auto transfer = plan(pools, copies);
  auto request = encode_read(copies, pools);
  lock.lock();
  if (stopping_) throw std::runtime_error("this carrier is shut");
  const auto number = ++last_;
  set_transfer(request, number);
  auto& known = connections_[server];
  const bool is_first = known == nullptr;
  if (is_first) known = std::make_shared<ClientConnection>(server);
  const auto connection = known;
  if (connection->under_way++ == 0) connection->deadline = now() + patience_;
  transfer.connection = connection;
  transfers_.emplace(number, std::move(transfer));
  connection->out.push_back(std::move(request));
  flush(connection, lock);
  return {number, is_first};
}

void PageClient::connect(const std::string& server, std::string name, Socket connected) {
  Lock lock(mutex_);
  const auto found = connections_.find(server);
  if (stopping_ || found == connections_.end() || found->second->socket) return;
  const auto connection = found->second;
  connection->socket.emplace(std::move(connected));
  connection->name = std::move(name);
  connection->deadline = now() + patience_;
  flush(connection, lock);
  lock.unlock();
  poller_.wake();
}

void PageClient::fail(const std::string& server, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(server);
  if (found != connections_.end() && !found->second->socket) end_all(ConnectionPtr(found->second), why);
}

void PageClient::close(std::uint64_t transfer) {
  if (process_ != ::getpid()) return;
  {
    Lock lock(mutex_);
    const auto found = transfers_.find(transfer);
    if (found != transfers_.end()) {
      const auto connection = found->second.connection;
      transfers_.erase(found);
      --connection->under_way;
      rested_.wait(lock, [&] { return written_ != transfer; });
      connection->out.push_back(encode_forget(transfer));
      flush(connection, lock);
    }
  }
  completions_.forget(transfer);
}

void PageClient::shut() {
  if (process_ != ::getpid()) return;
  {
    Lock lock(mutex_);
    stopping_ = true;
    transfers_.clear();
    rested_.wait(lock, [&] { return written_ == 0; });
  }
  poller_.wake();
  if (thread_.joinable()) thread_.join();
  poller_.close();
}

// Sends what there is to send once there is a connection, unless somebody is at it: he goes on until there is nothing.
// The lock is let go of while the system takes it.
void PageClient::flush(const ConnectionPtr& connection, Lock& lock) {
  if (!connection->socket || std::exchange(connection->sending, true)) return;
  connection->blocked = false;
  while (!connection->out.empty() && !connection->blocked) {
    const auto part = part_of(std::as_bytes(std::span(connection->out.front())).subspan(connection->sent));
    lock.unlock();
    std::optional<std::size_t> sent;
    try {
      sent = connection->socket->send({&part, 1});
    } catch (const NetError&) {  // the thread sees it, too, and tells
    }
    lock.lock();
    connection->blocked = !sent;
    connection->sent += sent.value_or(0);
    if (connection->sent < connection->out.front().size()) continue;
    connection->out.pop_front();
    connection->sent = 0;
  }
  connection->sending = false;
  if (connection->blocked) poller_.wake();  // the thread goes on when there is room
}

void PageClient::run() {
  const auto tick = std::chrono::duration_cast<std::chrono::milliseconds>(patience_ / 4) + std::chrono::milliseconds(1);
  for (;;) {
    adopt();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    for (const auto& [key, events] : poller_.wait(polled_.empty() ? std::nullopt : std::optional(tick))) {
      const auto found = polled_.find(key);
      if (found != polled_.end()) go_on(ConnectionPtr(found->second), events);
    }
    expire();
  }
  for (const auto& [key, connection] : polled_) connection->socket->hang_up();
  polled_.clear();
  const std::lock_guard lock(mutex_);
  connections_.clear();
}

// Waits for what comes from servers that have been connected since, and for room where some is needed.
void PageClient::adopt() {
  std::vector<ConnectionPtr> full;  // the system's lists are
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [server, connection] : connections_) {
      if (!connection->socket) continue;
      const auto number = connection->socket->number();
      const auto wanted = connection->wanted();
      try {
        if (connection->key == 0) {
          connection->key = ++last_key_;
          polled_.emplace(connection->key, connection);
          poller_.add(number, connection->key, wanted);
        } else if (wanted != connection->awaited) {
          poller_.change(number, connection->key, wanted);
        }
        connection->awaited = wanted;
      } catch (const NetError&) {
        full.push_back(connection);
      }
    }
  }
  for (const auto& connection : full) drop(connection, "cannot be waited for: no descriptors are left");
}

void PageClient::go_on(const ConnectionPtr& connection, std::uint32_t ready) {
  try {
    if ((ready & EPOLLOUT) != 0) {
      Lock lock(mutex_);
      flush(connection, lock);
    }
    if ((ready & ~std::uint32_t{EPOLLOUT}) == 0) return;
    for (std::size_t received = 0; received < kShare && receive(connection);) received += kMostFrame;
  } catch (const std::exception& error) {
    drop(connection, error.what());
  }
}

PageClient::Transfer* PageClient::find(std::uint64_t transfer, const ClientConnection& connection) {
  const auto found = transfers_.find(transfer);
  return found == transfers_.end() || found->second.connection.get() != &connection ? nullptr : &found->second;
}

// Receives once: what is left of a frame, into its pages, and the head of the next one behind it. False if nothing more
// is there for now: because less came, or because nothing is waited for.
bool PageClient::receive(const ConnectionPtr& connection) {
  auto& parts = connection->parts;
  auto& left = connection->frame_left;
  parts.clear();
  std::size_t offered = 0;
  if (left > 0) {
    const std::lock_guard lock(mutex_);
    const auto* const transfer = find(connection->frame.transfer, *connection);
    if (connection->frame.kind == FrameKind::failure) {
      parts.push_back(part_of(std::span(connection->text).last(left)));
    } else if (transfer != nullptr) {
      transfer->append(parts, left);
      written_ = connection->frame.transfer;
    } else {
      connection->scratch.resize(kScratch);
      parts.push_back(part_of(std::span(connection->scratch).first(std::min(left, kScratch))));
    }
    for (const auto& part : parts) offered += part.iov_len;
  }
  if (offered == left) {
    const auto head = std::as_writable_bytes(std::span(&connection->frame_next, 1));
    parts.push_back(part_of(head.subspan(connection->frame_known)));
    offered += parts.back().iov_len;
  }
  const auto rest = [&](std::size_t count) {
    const std::lock_guard lock(mutex_);
    if (auto* const transfer = find(std::exchange(written_, 0), *connection)) transfer->advance(count);
    rested_.notify_all();
  };
  std::size_t count = 0;
  try {
    if (const auto received = connection->socket->receive(parts)) count = *received;
  } catch (const NetError&) {
    rest(0);
    throw;
  }
  const auto of_frame = std::min(count, left);
  rest(of_frame);
  if (count == 0) return false;
  left -= of_frame;
  connection->frame_known += count - of_frame;
  if (of_frame > 0 && left == 0) end_frame(*connection);
  if (connection->frame_known == sizeof(Frame)) take_frame(*connection);
  return count == offered && (connection->frame_left > 0 || is_asked(*connection));
}

bool PageClient::is_asked(const ClientConnection& connection) {
  const std::lock_guard lock(mutex_);
  return connection.under_way > 0;
}

// All of the next frame's head has come.
void PageClient::take_frame(ClientConnection& connection) {
  const auto frame = connection.frame_next;
  connection.frame = frame;
  connection.frame_known = 0;
  const std::lock_guard lock(mutex_);
  if (frame.transfer == 0 || frame.transfer > last_) throw NetError("answers what nobody asked");
  const auto* const transfer = find(frame.transfer, connection);
  connection.deadline = now() + patience_;
  switch (frame.kind) {
    case FrameKind::pages:
      if (frame.bytes == 0 || frame.bytes > kMostFrame || (transfer != nullptr && frame.bytes > transfer->left)) {
        throw NetError("sends " + std::to_string(frame.bytes) + " bytes of pages where at most " +
                       std::to_string(transfer != nullptr ? transfer->left : kMostFrame) + " were expected");
      }
      break;
    case FrameKind::end:
      if (frame.bytes != 0) throw NetError("sends something behind the end of the pages");
      if (transfer != nullptr && transfer->left != 0) {
        throw NetError("says that all is sent while " + std::to_string(transfer->left) + " bytes are missing");
      }
      end(frame.transfer, connection, {});
      break;
    case FrameKind::failure:
      if (frame.bytes == 0 || frame.bytes > kMostText) throw NetError("gives no proper reason for a failure");
      connection.text.resize(frame.bytes);
      break;
    default:
      throw NetError("sends what there is not in this protocol");
  }
  connection.frame_left = frame.bytes;
}

void PageClient::end_frame(ClientConnection& connection) {
  const std::lock_guard lock(mutex_);
  connection.deadline = now() + patience_;
  if (connection.frame.kind != FrameKind::failure) return;
  const std::string text(reinterpret_cast<const char*>(connection.text.data()), connection.text.size());
  end(connection.frame.transfer, connection, connection.name + ": " + text);
}

// Under the lock, so that close() finds a transfer either under way or told.
void PageClient::end(std::uint64_t number, ClientConnection& connection, std::string error) {
  const auto* const transfer = find(number, connection);
  if (transfer == nullptr) return;
  --connection.under_way;
  const auto bytes = error.empty() ? transfer->bytes : 0;
  completions_.add({number, std::move(error), bytes, seconds_since(transfer->begun)});
  transfers_.erase(number);
}

void PageClient::expire() {
  std::vector<ConnectionPtr> late;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, connection] : polled_) {
      if (connection->under_way > 0 && connection->deadline < now()) late.push_back(connection);
    }
  }
  for (const auto& connection : late) {
    const auto seconds = std::to_string(std::chrono::duration<double>(patience_).count());
    drop(connection, "sent nothing that was waited for in " + seconds + " seconds");
  }
}

void PageClient::drop(const ConnectionPtr& connection, const std::string& why) {
  poller_.remove(connection->socket->number());
  connection->socket->hang_up();
  polled_.erase(connection->key);
  const std::lock_guard lock(mutex_);
  end_all(connection, connection->name + " " + why);
}

// Under the lock; the next one who asks this server makes another connection.
void PageClient::end_all(const ConnectionPtr& connection, const std::string& why) {
  const auto known = connections_.find(connection->server);
  if (known != connections_.end() && known->second == connection) connections_.erase(known);
  std::vector<std::uint64_t> ended;
  for (const auto& [number, transfer] : transfers_) {
    if (transfer.connection == connection) ended.push_back(number);
  }
  for (const auto number : ended) end(number, *connection, why);
}

}  // namespace ipc::net
