#include "socket.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <string>
#include <system_error>

namespace ipc::net {
namespace {

constexpr auto kLongestLook = std::chrono::microseconds(100);

NetError last_error(const std::string& what) { return NetError(what + ": " + std::generic_category().message(errno)); }

msghdr message_of(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast): C's type
  message.msg_iovlen = std::min<std::size_t>(parts.size(), IOV_MAX);
  return message;
}

bool must_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);  // what was open is the other's to close
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

std::optional<std::size_t> Socket::send(std::span<const iovec> parts, bool more_follows) const {
  const auto message = message_of(parts);
  const auto sent = ::sendmsg(number(), &message, MSG_NOSIGNAL | MSG_DONTWAIT | (more_follows ? MSG_MORE : 0));
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (must_wait()) return std::nullopt;
  throw last_error("the connection broke");
}

std::optional<std::size_t> Socket::receive(std::span<const iovec> parts) const {
  auto message = message_of(parts);
  const auto received = ::recvmsg(number(), &message, MSG_DONTWAIT);
  if (received > 0) return static_cast<std::size_t>(received);
  if (received == 0) throw NetError("closed the connection");
  if (must_wait()) return std::nullopt;
  throw last_error("the connection broke");
}

void Socket::hang_up() const { ::shutdown(number(), SHUT_RDWR); }

void Socket::drop_unread() const {
  const linger at_once{1, 0};
  ::setsockopt(number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (epoll_.number() < 0 || bell_.number() < 0) throw last_error("no descriptors are left");
  add(bell_.number(), kWoken, EPOLLIN);
}

void Poller::add(int descriptor, std::uint64_t key, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) != 0) throw last_error("epoll_ctl");
}

void Poller::change(int descriptor, std::uint64_t key, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (::epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, descriptor, &event) != 0) throw last_error("epoll_ctl");
}

void Poller::remove(int descriptor) { ::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, descriptor, nullptr); }

std::vector<Readiness> Poller::wait(std::optional<std::chrono::milliseconds> longest) {
  std::array<epoll_event, 64> events;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by the system
  int count = 0;
  const auto look = [&](int timeout) {
    count = ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()), timeout);
    return count > 0;
  };
  const auto start = now();
  if (!spin_.is_worth_it() || !spin_.until([&] { return look(0); }, [] { return 1; }, start + kLongestLook)) {
    look(longest ? static_cast<int>(longest->count()) : -1);
    spin_.learn(now() - start);
  }
  std::vector<Readiness> ready;
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 != kWoken) {
      ready.push_back({event.data.u64, event.events});
      continue;
    }
    std::uint64_t rings = 0;
    [[maybe_unused]] const auto read = ::read(bell_.number(), &rings, sizeof rings);
  }
  return ready;
}

void Poller::wake() const {
  const std::uint64_t ring = 1;
  [[maybe_unused]] const auto written = ::write(bell_.number(), &ring, sizeof ring);  // full: it is awake
}

void Poller::close() {
  epoll_ = Descriptor();
  bell_ = Descriptor();
}

iovec part_of(std::span<std::byte> bytes) { return {bytes.data(), bytes.size()}; }

iovec part_of(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};  // NOLINT: C has one type for what is read and written
}

void advance(std::vector<iovec>& parts, std::size_t& first, std::size_t bytes) {
  while (bytes > 0) {
    auto& part = parts[first];
    const auto taken = std::min(bytes, part.iov_len);
    part.iov_base = static_cast<std::byte*>(part.iov_base) + taken;
    part.iov_len -= taken;
    bytes -= taken;
    if (part.iov_len == 0) ++first;
  }
}

}  // namespace ipc::net
