// A server that was introduced and sends anything: a client writes to the pages that it asked for, and tells of all.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "choices.h"
#include "net/page_client.h"
#include "wire.h"

namespace {

using ipc::fuzz::Choices;
using ipc::fuzz::Ends;
using ipc::fuzz::require;
using ipc::fuzz::Writer;
using namespace ipc::net;  // NOLINT(google-build-using-namespace): a program of its own

constexpr std::int32_t kPages = 8;
constexpr std::size_t kPageBytes = 3000;
constexpr double kPatience = 3600;
constexpr auto kOwn = std::byte{5}, kSent = std::byte{9};

std::string unique_name(const char* what) { return std::string("fuzz-") + what + "-" + std::to_string(getpid()); }

// A client over pages, some of which are asked for.
class Side {
 public:
  Side() {
    queue_->identity().unlink();
    pool_->identity().unlink();
    std::vector<std::int32_t> pages(kPages);
    require(pool_->allocate(pages, {1, 1}));
    client_.use({{"kv", pool_}});
  }

  void play(Choices& choices) {
    fill(all_pages(), kOwn);
    asked_.clear();
    auto ends = Ends::make();
    const auto server = "server " + std::to_string(++servers_);
    begin(server, choices);
    client_.connect(server, "server", std::move(ends.ours));
    send(ends, choices);
    ends.theirs = Descriptor();  // which ends all that is left
    wait();
  }

 private:
  using Pages = std::vector<std::int32_t>;

  // Asks for pages in their order, each at most once, in some transfers.
  void begin(const std::string& server, Choices& choices) {
    std::int32_t next = 0;
    do {
      Pages pages;
      for (auto left = choices.between(0, 4); left > 0 && next < kPages; --left) pages.push_back(next++);
      const auto begun = client_.read(server, {{"kv", pages, std::vector<std::uint64_t>(pages.size()), pages}});
      require(begun.is_first == asked_.empty());
      asked_.emplace(begun.transfer, pages);
    } while (choices.byte() >= 64);
  }

  std::uint64_t number(Choices& choices) {
    if (choices.byte() < 8) return choices.number();
    if (asked_.empty()) return 1;
    const auto first = asked_.begin()->first;
    return first + static_cast<std::uint64_t>(choices.between(0, static_cast<std::int64_t>(asked_.size()) - 1));
  }

  void send(const Ends& ends, Choices& choices) {
    while (choices.left()) {
      Writer writer;
      write(writer, choices);
      if (!send_all(ends, writer.bytes())) return;
      if (choices.byte() < 16) close(number(choices));
    }
  }

  void write(Writer& writer, Choices& choices) {
    const auto how = choices.byte();
    if (how < 8) writer.garbage(choices);
    const auto transfer = number(choices);
    const auto found = asked_.find(transfer);
    const auto whole = found == asked_.end() ? 100 : found->second.size() * kPageBytes;
    const auto bytes = how < 128 ? whole : static_cast<std::size_t>(choices.between(0, 4000));
    const auto kind = how < 32 ? FrameKind::failure : FrameKind::pages;
    writer.put(Frame{transfer, how < 16 ? FrameKind{choices.byte()} : kind, static_cast<std::uint32_t>(bytes)});
    writer.fill(bytes, kSent);
    if (how >= 240) writer.cut(choices);
    if (how < 128 || choices.byte() < 64) writer.put(Frame{transfer, FrameKind::end, 0});
  }

  // False if the client has hung up.
  static bool send_all(const Ends& ends, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(ends.theirs.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
    }
    return true;
  }

  // Nothing is written to its pages after this, which wait() sees, and nothing told of it.
  void close(std::uint64_t transfer) {
    client_.close(transfer);
    const auto found = asked_.find(transfer);
    if (found == asked_.end()) return;
    fill(found->second, kOwn);
    asked_.erase(found);
  }

  // Until all has been told; what came is where it belongs.
  void wait() {
    std::set<std::int32_t> written;
    while (!asked_.empty()) {
      for (const auto& done : client_.completions().take()) {
        const auto found = asked_.find(done.transfer);
        require(found != asked_.end());
        if (done.error.empty()) require(holds(found->second, kSent));
        written.insert(found->second.begin(), found->second.end());
        asked_.erase(found);
      }
      if (!asked_.empty())
        queue_->receive(
            1, [](ipc::MessageView) {}, ipc::now() + std::chrono::milliseconds(200));
    }
    for (const auto page : all_pages()) require(written.contains(page) || holds({page}, kOwn));
  }

  static Pages all_pages() {
    Pages pages(kPages);
    std::iota(pages.begin(), pages.end(), 0);
    return pages;
  }

  std::span<std::byte> bytes_of_page(std::int32_t page) {
    return pool_->data()->host_bytes().subspan(static_cast<std::size_t>(page) * kPageBytes, kPageBytes);
  }

  void fill(const Pages& pages, std::byte value) {
    for (const auto page : pages) std::ranges::fill(bytes_of_page(page), value);
  }

  bool holds(const Pages& pages, std::byte value) {
    return std::ranges::all_of(pages, [&](auto page) {
      return std::ranges::all_of(bytes_of_page(page), [&](auto byte) { return byte == value; });
    });
  }

  std::shared_ptr<ipc::MessageQueue> queue_ = ipc::MessageQueue::create(unique_name("bell"), 256);
  std::shared_ptr<ipc::PagePool> pool_ = ipc::PagePool::create(unique_name("pages"), kPages, kPageBytes, ipc::Place{});
  PageClient client_{ipc::Bell(queue_, {}), kPatience};
  std::map<std::uint64_t, Pages> asked_;  // and not told of yet
  std::uint64_t servers_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Side side;
  Choices choices({data, size});
  side.play(choices);
  return 0;
}
