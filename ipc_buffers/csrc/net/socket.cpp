#include "socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <system_error>
#include <utility>

namespace ipc::net {
namespace {

constexpr int kLocalBuffer = 208 << 10;
constexpr int kWaiting = 64;  // who has connected and is not accepted yet

NetError last_error(const std::string& what) { return NetError(what + ": " + describe_error(errno)); }

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int result = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (result != 0) throw NetError("'" + host + "' is no address: " + ::gai_strerror(result));
  return {found, &::freeaddrinfo};
}

Descriptor open_socket(const addrinfo& address) {
  Descriptor opened(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (opened.number() < 0) throw last_error("no socket");
  return opened;
}

void set_option(int socket, int level, int option, int value) {
  if (::setsockopt(socket, level, option, &value, sizeof value) != 0) throw last_error("setsockopt");
}

msghdr message_of(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast): C's type
  message.msg_iovlen = std::min<std::size_t>(parts.size(), IOV_MAX);
  return message;
}

bool same_host(const sockaddr_storage& one, const sockaddr_storage& other) {
  if (one.ss_family != other.ss_family) return false;
  if (one.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(one).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(other).sin_addr.s_addr;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(one).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(other).sin6_addr, sizeof(in6_addr)) == 0;
}

bool must_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

std::string describe_error(int number) { return std::generic_category().message(number); }

Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);  // what was open is the other's to close
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Socket Socket::connect(const std::string& host, std::uint16_t port) {
  const auto addresses = resolve(host, port, AI_NUMERICHOST);
  Socket socket(open_socket(*addresses));
  if (::connect(socket.number(), addresses->ai_addr, addresses->ai_addrlen) != 0 && errno != EINPROGRESS) {
    throw last_error("cannot be connected to");
  }
  return socket;
}

Socket::Socket(Descriptor connected) : descriptor_(std::move(connected)) {
  set_option(number(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(number(), SOL_SOCKET, SO_KEEPALIVE, 1);
  // A machine that is gone is noticed within a minute, also where nothing is asked of it.
  set_option(number(), IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(number(), IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(number(), IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void Socket::check_connected() const {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(number(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) throw last_error("getsockopt");
  if (error != 0) throw NetError("cannot be connected to: " + describe_error(error));
}

void Socket::keep_close() const {
  sockaddr_storage here{}, there{};
  socklen_t size = sizeof here;
  socklen_t there_size = sizeof there;
  if (::getsockname(number(), reinterpret_cast<sockaddr*>(&here), &size) != 0 ||
      ::getpeername(number(), reinterpret_cast<sockaddr*>(&there), &there_size) != 0) {
    return;
  }
  if (same_host(here, there)) ::setsockopt(number(), SOL_SOCKET, SO_SNDBUF, &kLocalBuffer, sizeof kLocalBuffer);
}

std::string Socket::peer() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(number(), generic, &size) != 0 ||
      ::getnameinfo(generic, size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "somebody who has gone";
  }
  return std::string(host.data()) + " port " + port.data();
}

std::optional<std::size_t> Socket::send(std::span<const iovec> parts) const {
  const auto message = message_of(parts);
  const auto sent = ::sendmsg(number(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
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

Listener::Listener(const std::string& host, std::uint16_t port) {
  const auto addresses = resolve(host, port, AI_PASSIVE);
  descriptor_ = open_socket(*addresses);
  set_option(number(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(number(), addresses->ai_addr, addresses->ai_addrlen) != 0 || ::listen(number(), kWaiting) != 0) {
    const auto name = "port " + std::to_string(port) + " of " + host;
    if (errno == EADDRINUSE) throw NetError(name + " is in use: choose another one, or 0 for any that is free");
    throw last_error(name + " cannot be listened at");
  }
}

std::uint16_t Listener::port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(number(), reinterpret_cast<sockaddr*>(&address), &size) != 0) throw last_error("getsockname");
  // The port is at the same place in both.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::optional<Socket> Listener::accept(bool& is_full) const {
  Descriptor accepted(::accept4(number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  is_full = accepted.number() < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
  if (accepted.number() < 0) return std::nullopt;
  try {
    return Socket(std::move(accepted));
  } catch (const NetError&) {  // has gone already
    return std::nullopt;
  }
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
  const int timeout = longest ? static_cast<int>(longest->count()) : -1;
  const int count = ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()), timeout);
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
