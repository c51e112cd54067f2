// A client that was introduced and sends anything: a server answers with frames of its own pages, or hangs up.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "choices.h"
#include "net/server_connection.h"
#include "wire.h"

namespace {

using ipc::fuzz::Choices;
using ipc::fuzz::Ends;
using ipc::fuzz::require;
using ipc::fuzz::Writer;
using namespace ipc::net;  // NOLINT(google-build-using-namespace): a program of its own

constexpr std::size_t kPages = 8, kPageBytes = 3000;
constexpr auto kServed = std::byte{7};
constexpr auto kForEver = std::chrono::hours(1);

std::shared_ptr<ipc::PagePool> make_pool() {
  auto pool = ipc::PagePool::create("fuzz-page-server-" + std::to_string(getpid()), kPages, kPageBytes, ipc::Place{});
  std::ranges::fill(pool->data()->host_bytes(), kServed);
  pool->identity().unlink();
  return pool;
}

std::vector<std::byte> requests(Choices& choices, const ipc::PagePool& pool) {
  Writer writer;
  while (choices.left()) {
    const auto how = choices.byte();
    if (how < 16) writer.garbage(choices);
    if (how >= 16 && how < 32) writer.cut(choices);
    const auto transfer = choices.byte() % 4U;
    if (how >= 200) {
      writer.put(Request{transfer, RequestKind::forget, 0});
      continue;
    }
    const auto pages = choices.indices(20, kPages);
    const auto told =
        how < 48 ? static_cast<std::uint32_t>(choices.number()) : static_cast<std::uint32_t>(pages.size());
    const auto bytes = sizeof(Part) + pages.size() * (sizeof(std::int32_t) + sizeof(std::uint64_t));
    writer.put(
        Request{transfer, RequestKind::read, static_cast<std::uint32_t>(bytes) + (how < 64 ? choices.byte() : 0U)});
    writer.put(Part{choices.byte() % 3U, told});
    for (const auto page : pages) writer.put(page);
    for (const auto page : pages) {
      const bool is_there = page >= 0 && static_cast<std::size_t>(page) < kPages && choices.byte() < 240;
      writer.put(is_there ? pool.epochs(std::array{page}).front() : choices.number());
    }
  }
  return {writer.bytes().begin(), writer.bytes().end()};
}

// Follows what a server answers: heads of frames, and bytes of pages behind them.
class Reader {
 public:
  void take(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto part = std::min(bytes.size(), left_ > 0 ? left_ : sizeof(Frame) - known_);
      if (left_ > 0) {
        const bool is_page = frame_.kind == FrameKind::pages;
        require(!is_page || std::ranges::all_of(bytes.first(part), [](auto byte) { return byte == kServed; }));
        left_ -= part;
      } else {
        std::memcpy(reinterpret_cast<std::byte*>(&frame_) + known_, bytes.data(), part);
        known_ += part;
        if (known_ == sizeof(Frame)) begin();
      }
      bytes = bytes.subspan(part);
    }
  }

 private:
  void begin() {
    known_ = 0;
    left_ = frame_.bytes;
    const bool is_end = frame_.kind == FrameKind::end;
    require(is_end || frame_.kind == FrameKind::pages || frame_.kind == FrameKind::failure);
    require(is_end == (left_ == 0) && left_ <= (frame_.kind == FrameKind::pages ? kMostFrame : kMostText));
  }

  Frame frame_{};
  std::size_t known_ = 0;
  std::size_t left_ = 0;
};

void drain(const Ends& ends, Reader& reader) {
  std::array<std::byte, 8192> scratch;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by the system
  for (;;) {
    const auto count = ::recv(ends.theirs.number(), scratch.data(), scratch.size(), MSG_DONTWAIT);
    if (count <= 0) return;
    reader.take(std::span(scratch).first(static_cast<std::size_t>(count)));
  }
}

void play(Choices& choices, const std::shared_ptr<ipc::PagePool>& pool) {
  const auto piece = static_cast<std::size_t>(choices.between(1, 200));
  auto ends = Ends::make();
  ServerConnection connection(std::move(ends.ours), {{"kv", pool}, {"none", nullptr}}, kForEver);
  const auto sent = requests(choices, *pool);
  Reader reader;
  try {
    for (std::span<const std::byte> left(sent); !left.empty() || connection.awaited() != EPOLLIN;) {
      const auto now = left.first(std::min(piece, left.size()));
      if (!now.empty())
        require(::send(ends.theirs.number(), now.data(), now.size(), 0) == static_cast<ssize_t>(now.size()));
      left = left.subspan(now.size());
      connection.go_on(now.empty() ? EPOLLOUT : EPOLLIN | EPOLLOUT);
      drain(ends, reader);
    }
  } catch (const NetError&) {
  } catch (const std::invalid_argument&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto pool = make_pool();
  Choices choices({data, size});
  play(choices, pool);
  return 0;
}
