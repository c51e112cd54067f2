#include "cuda_sockets.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace fake_cuda {
namespace {

constexpr int kWaiting = 16;
constexpr char kByte = 'u';

struct Address {
  explicit Address(pid_t owner) {
    struct stat space {};
    ::stat("/proc/self/ns/pid", &space);
    const std::string name = "cuda-uvmfd-" + std::to_string(space.st_ino) + '-' + std::to_string(owner);
    // the first byte, 0, makes it abstract; the real name ends with another one
    std::copy(name.begin(), name.end(), socket.sun_path + 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + 2);
  }

  const sockaddr* pointer() const { return reinterpret_cast<const sockaddr*>(&socket); }

  sockaddr_un socket{AF_UNIX, {}};
  socklen_t size = 0;
};

// A message of one byte and room for a descriptor beside it.
struct Message {
  Message() {
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }

  char byte = kByte;
  iovec bytes{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
};

void send_descriptor(int peer, int descriptor) {
  Message message;
  cmsghdr* beside = CMSG_FIRSTHDR(&message.header);
  beside->cmsg_level = SOL_SOCKET;
  beside->cmsg_type = SCM_RIGHTS;
  beside->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(beside), &descriptor, sizeof descriptor);
  ::sendmsg(peer, &message.header, MSG_NOSIGNAL);
}

bool receive_descriptor(int peer) {
  Message message;
  if (::recvmsg(peer, &message.header, MSG_CMSG_CLOEXEC) != 1) return false;
  const cmsghdr* beside = CMSG_FIRSTHDR(&message.header);
  if (beside == nullptr || beside->cmsg_type != SCM_RIGHTS) return false;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(beside), sizeof descriptor);
  return ::close(descriptor) == 0;
}

// Peers are refused once an accept has failed.
void serve(int listener, int descriptor) {
  for (int peer = 0; (peer = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; ::close(peer)) {
    send_descriptor(peer, descriptor);
  }
  ::close(listener);
}

}  // namespace

bool serve_peers() {
  static const bool serves = [] {
    const Address own(::getpid());
    const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 || ::bind(listener, own.pointer(), own.size) != 0 || ::listen(listener, kWaiting) != 0) {
      return false;
    }
    std::thread server(serve, listener, ::open("/dev/null", O_RDWR | O_CLOEXEC));
    const bool named = ::pthread_setname_np(server.native_handle(), "cuda-server") == 0;
    server.detach();
    return named;
  }();
  return serves;
}

bool take_descriptor_of(pid_t owner) {
  const Address other(owner);
  const int peer = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (peer < 0) return false;
  const bool taken = ::connect(peer, other.pointer(), other.size) == 0 && receive_descriptor(peer);
  ::close(peer);
  return taken;
}

}  // namespace fake_cuda
