#include "protocol.h"

#include <cstring>
#include <iterator>
#include <stdexcept>

#include "socket.h"

namespace ipc::net {
namespace {

void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

// Takes values off the front of bytes that somebody else has written.
class Taker {
 public:
  explicit Taker(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool is_empty() const { return bytes_.empty(); }

  template <typename T>
  std::vector<T> take(std::size_t count) {
    if (count > bytes_.size() / sizeof(T)) throw std::invalid_argument("a request that is shorter than it says");
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), bytes_.data(), count * sizeof(T));
    bytes_ = bytes_.subspan(count * sizeof(T));
    return values;
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

std::vector<std::byte> encode_read(const std::vector<PageCopy>& copies, const PoolTable& pools) {
  std::vector<std::byte> bytes(sizeof(Request));
  for (const auto& copy : copies) {
    const Part part{static_cast<std::uint32_t>(std::distance(pools.begin(), pools.find(copy.pool))),
                    static_cast<std::uint32_t>(copy.source.size())};
    append(bytes, bytes_of(part));
    append(bytes, std::as_bytes(std::span(copy.source)));
    append(bytes, std::as_bytes(std::span(copy.epochs)));
  }
  if (bytes.size() > kMostRequest || copies.size() > kMostParts)
    throw std::invalid_argument("more pages than a request can name; ask for fewer");
  const Request request{0, RequestKind::read, static_cast<std::uint32_t>(bytes.size() - sizeof(Request))};
  std::memcpy(bytes.data(), &request, sizeof request);
  return bytes;
}

void set_transfer(std::vector<std::byte>& request, std::uint64_t transfer) {
  std::memcpy(request.data() + offsetof(Request, transfer), &transfer, sizeof transfer);
}

std::vector<std::byte> encode_forget(std::uint64_t transfer) {
  const Request request{transfer, RequestKind::forget, 0};
  const auto bytes = bytes_of(request);
  return {bytes.begin(), bytes.end()};
}

std::vector<ReadPart> parse_parts(std::span<const std::byte> bytes) {
  std::vector<ReadPart> parts;
  Taker taker(bytes);
  while (!taker.is_empty()) {
    if (parts.size() == kMostParts) throw std::invalid_argument("a request of too many parts");
    const auto [pool, pages] = taker.take<Part>(1).front();
    auto numbers = taker.take<std::int32_t>(pages);
    parts.push_back({pool, std::move(numbers), taker.take<std::uint64_t>(pages)});
  }
  return parts;
}

}  // namespace ipc::net
