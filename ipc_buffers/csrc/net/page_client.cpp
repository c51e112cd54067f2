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

PageClient::PageClient(const std::string& token, std::string description, double patience)
    : token_(parse_token(token)),
      description_(std::move(description)),
      patience_(parse_patience(patience)),
      layout_(std::make_shared<Layout>(description_, pools_)),
      process_(::getpid()) {
  thread_ = std::thread([this] { run(); });
}

PageClient::~PageClient() {
  shut();
  if (thread_.joinable()) thread_.detach();  // a fork has no such thread
}

void PageClient::use(PoolTable pools) {
  for (const auto& [name, pool] : pools) pool->data()->host_bytes();
  auto layout = std::make_shared<Layout>(description_, pools);
  const std::lock_guard lock(mutex_);
  if (!pools_.empty()) throw std::invalid_argument("pools have been registered already");
  pools_ = std::move(pools);
  layout_ = std::move(layout);
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

std::uint64_t PageClient::read(const ServerAddress& server, const std::vector<PageCopy>& copies) {
  if (process_ != ::getpid()) throw std::runtime_error("this carrier belongs to the parent process");
  Lock lock(mutex_);
  const auto pools = pools_;
  const auto layout = layout_;
  lock.unlock();
  auto transfer = plan(pools, copies);
  auto request = encode_read(copies, *layout);
  lock.lock();
  if (stopping_) throw std::runtime_error("this carrier is shut");
  const auto number = ++last_;
  set_transfer(request, number);
  auto& known = connections_[server];
  const bool is_new = known == nullptr;
  if (is_new) known = std::make_shared<ClientConnection>(server);
  const auto connection = known;
  if (connection->under_way++ == 0) connection->deadline = now() + patience_;
  transfer.connection = connection;
  transfers_.emplace(number, std::move(transfer));
  if (connection->is_open) {
    connection->out.push_back(std::move(request));
    flush(connection, lock);
  } else {
    connection->waiting.push_back(std::move(request));
    if (is_new) poller_.wake();
  }
  return number;
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
      (connection->is_open ? connection->out : connection->waiting).push_back(encode_forget(transfer));
      if (connection->is_open) flush(connection, lock);
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
  completions_.shut();
}

// Sends what there is to send, unless somebody is at it: he goes on until there is nothing. The lock is let go of while
// the system takes it.
void PageClient::flush(const ConnectionPtr& connection, Lock& lock) {
  if (std::exchange(connection->sending, true)) return;
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

// Begins to connect to servers that were asked for the first time, and waits for room where some is needed.
void PageClient::adopt() {
  std::vector<ConnectionPtr> fresh;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [address, connection] : connections_) {
      if (!connection->socket) fresh.push_back(connection);
    }
  }
  for (const auto& connection : fresh) {
    try {
      connection->socket.emplace(Socket::connect(connection->address.host, connection->address.port));
      connection->key = ++last_key_;
      poller_.add(connection->socket->number(), connection->key, connection->awaited);
      polled_.emplace(connection->key, connection);
    } catch (const NetError& error) {
      fail(connection, error.what());
    }
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [key, connection] : polled_) {
    const auto wanted = connection->wanted();
    if (wanted != connection->awaited) poller_.change(connection->socket->number(), key, wanted);
    connection->awaited = wanted;
  }
}

void PageClient::go_on(const ConnectionPtr& connection, std::uint32_t ready) {
  using Phase = ClientConnection::Phase;
  const auto send = [&](std::vector<std::byte> bytes) {
    Lock lock(mutex_);
    connection->deadline = now() + patience_;
    connection->out.push_back(std::move(bytes));
    flush(connection, lock);
  };
  try {
    if (connection->phase == Phase::connecting) {
      connection->socket->check_connected();
      connection->phase = Phase::greeting;
      const Greeting greeting{kMagic, kVersion, 0, connection->ours};
      const auto bytes = bytes_of(greeting);
      send({bytes.begin(), bytes.end()});
      return;
    }
    if ((ready & EPOLLOUT) != 0) {
      Lock lock(mutex_);
      flush(connection, lock);
    }
    if ((ready & ~std::uint32_t{EPOLLOUT}) == 0) return;
    if (connection->phase == Phase::open) {
      for (std::size_t received = 0; received < kShare && receive(connection);) received += kMostFrame;
      return;
    }
    connection->inbox.fill(*connection->socket, kScratch);
    std::shared_ptr<const Layout> layout;
    {
      const std::lock_guard lock(mutex_);
      layout = layout_;
    }
    std::vector<std::byte> answer;
    const bool known = connection->understand(token_, *layout, answer);
    if (!answer.empty()) send(std::move(answer));
    if (!known) return;
    Lock lock(mutex_);
    connection->is_open = true;
    connection->deadline = now() + patience_;
    std::ranges::move(connection->waiting, std::back_inserter(connection->out));
    connection->waiting.clear();
    flush(connection, lock);
  } catch (const std::exception& error) {
    fail(connection, error.what());
  }
}

PageClient::Transfer* PageClient::find(std::uint64_t transfer, const ClientConnection& connection) {
  const auto found = transfers_.find(transfer);
  return found == transfers_.end() || found->second.connection.get() != &connection ? nullptr : &found->second;
}

// Receives once: what is left of a frame, into its pages, and the head of the next one behind it. False if less came,
// so that nothing more is there for now.
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
  return count == offered;
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
  end(connection.frame.transfer, connection, connection.name() + ": " + text);
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
      const bool is_asked = connection->under_way > 0 || connection->phase != ClientConnection::Phase::open;
      if (is_asked && connection->deadline < now()) late.push_back(connection);
    }
  }
  const auto seconds = std::to_string(std::chrono::duration<double>(patience_).count());
  for (const auto& connection : late) fail(connection, "sent nothing that was waited for in " + seconds + " seconds");
}

void PageClient::fail(const ConnectionPtr& connection, const std::string& why) {
  if (connection->socket) {
    poller_.remove(connection->socket->number());
    connection->socket->hang_up();
  }
  polled_.erase(connection->key);
  const std::lock_guard lock(mutex_);
  const auto known = connections_.find(connection->address);
  if (known != connections_.end() && known->second == connection) connections_.erase(known);
  std::vector<std::uint64_t> ended;
  for (const auto& [number, transfer] : transfers_) {
    if (transfer.connection == connection) ended.push_back(number);
  }
  for (const auto number : ended) end(number, *connection, connection->name() + " " + why);
}

}  // namespace ipc::net
