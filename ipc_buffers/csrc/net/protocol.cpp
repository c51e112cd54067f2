#include "protocol.h"

#include <sys/random.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>

#include "socket.h"

namespace ipc::net {
namespace {

constexpr std::size_t kTokenBytes = 32;

void fill_randomly(std::span<std::byte> bytes) {
  // The system gives as much as this at once, or nothing.
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw NetError("the system has no random numbers");
  }
}

std::string_view next_word(std::string_view& text, char end) {
  const auto length = text.find(end);
  if (length == std::string_view::npos) throw std::invalid_argument("a layout that is cut off");
  const auto word = text.substr(0, length);
  text.remove_prefix(length + 1);
  return word;
}

std::uint64_t number_of(std::string_view word) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) {
    throw std::invalid_argument("a layout with a size that is no number");
  }
  return number;
}

void check_line(std::string_view what, std::string_view text, std::string_view forbidden) {
  if (text.empty() || text.find_first_of(forbidden) != std::string_view::npos) {
    throw std::invalid_argument(std::string(what) + " must be one line" +
                                (forbidden.size() > 1 ? " without spaces" : "") + ", not '" + std::string(text) + "'");
  }
}

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

Nonce random_nonce() {
  Nonce nonce{};
  fill_randomly(nonce);
  return nonce;
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  fill_randomly(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

std::vector<std::byte> parse_token(const std::string& text) {
  std::vector<std::byte> token;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    std::uint8_t value = 0;
    const auto* const at = text.data() + i;
    if (std::from_chars(at, at + 2, value, 16).ptr == at + 2) token.push_back(std::byte{value});
  }
  if (token.size() != kTokenBytes || text.size() != 2 * kTokenBytes) {
    throw std::invalid_argument("a token has " + std::to_string(2 * kTokenBytes) + " hexadecimal digits");
  }
  return token;
}

Digest proof_of(std::span<const std::byte> token, Role role, const Nonce& client, const Nonce& server) {
  std::vector<std::byte> message;
  const std::string_view name = role == Role::client ? "client" : "server";
  append(message, std::as_bytes(std::span(name)));
  append(message, client);
  append(message, server);
  return hmac_sha256(token, message);
}

Layout::Layout(std::string described, const PoolTable& table) : description(std::move(described)) {
  check_line("a description", description, "\n");
  for (const auto& [name, pool] : table) {
    check_line("a pool's name", name, " \n");
    pools.push_back({name, pool->page_bytes(), pool->num_pages()});
  }
  if (text().size() > kMostLayout) throw std::invalid_argument("a description that is too long");
}

std::string Layout::text() const {
  auto text = description + '\n';
  for (const auto& pool : pools) {
    text += pool.name + ' ' + std::to_string(pool.page_bytes) + ' ' + std::to_string(pool.num_pages) + '\n';
  }
  return text;
}

Layout Layout::parse(std::string_view text) {
  Layout layout;
  layout.description = next_word(text, '\n');
  while (!text.empty()) {
    auto line = next_word(text, '\n');
    const auto name = next_word(line, ' ');
    const auto page_bytes = next_word(line, ' ');
    layout.pools.push_back({std::string(name), number_of(page_bytes), number_of(line)});
  }
  return layout;
}

std::optional<std::string> Layout::difference_from(const Layout& there) const {
  if (description != there.description) {
    return "serves '" + there.description + "', which is not the '" + description + "' of this side";
  }
  for (const auto& pool : pools) {
    const auto other = std::ranges::find(there.pools, pool.name, &Pool::name);
    if (other != there.pools.end() && other->page_bytes != pool.page_bytes) {
      return "has pages of '" + pool.name + "' of " + std::to_string(other->page_bytes) + " bytes, and this side of " +
             std::to_string(pool.page_bytes);
    }
  }
  return std::nullopt;
}

std::vector<std::byte> encode_read(const std::vector<PageCopy>& copies, const Layout& layout) {
  std::vector<std::byte> bytes(sizeof(Request));
  for (const auto& copy : copies) {
    const auto pool = std::ranges::find(layout.pools, copy.pool, &Layout::Pool::name);
    const Part part{static_cast<std::uint32_t>(pool - layout.pools.begin()),
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
