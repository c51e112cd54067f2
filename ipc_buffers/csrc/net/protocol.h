#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sha256.h"
#include "transfers.h"

// How pages are asked for over TCP. Numbers are little-endian, as all machines that run this are.
//
//   client                                    server
//   Greeting                                                    magic, version, a random number
//                                             Greeting
//   Introduction, layout                                        a proof that it has the token
//                                             Introduction, layout
//   Request, parts …                                            many at once
//                                             Frame, bytes of pages …; last an end, or what failed
//
// Neither side shows the token itself, so whoever answers at a port in a server's place learns nothing: a proof is an
// HMAC over both random numbers. After their end the frames of one request prove that its pages were in their epochs
// when the last byte of them had been read.
namespace ipc::net {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'p', 'a', 'g', 'e', 's', 'o', 'u', 't'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMostLayout = 64 << 10;   // bytes
constexpr std::size_t kMostRequest = 32 << 20;  // bytes, two million pages
constexpr std::size_t kMostParts = 64;
constexpr std::size_t kMostText = 4 << 10;
constexpr std::size_t kMostFrame = 1 << 20;

using Nonce = std::array<std::byte, 16>;

struct Greeting {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t unused;
  Nonce nonce;
};

enum class Verdict : std::uint32_t { welcome = 0, wrong_token = 1, another_server = 2, another_layout = 3 };

struct Introduction {
  Digest proof;
  std::uint64_t incarnation;  // of the server that is meant, or is answering
  Verdict verdict;            // of the server; a client has none
  std::uint32_t layout_bytes;
};

enum class RequestKind : std::uint32_t { read = 1, forget = 2 };

struct Request {
  std::uint64_t transfer;
  RequestKind kind;
  std::uint32_t bytes;  // of its parts: each a Part, page numbers, epochs
};

struct Part {
  std::uint32_t pool;  // by its place in the client's layout
  std::uint32_t pages;
};

enum class FrameKind : std::uint32_t { pages = 1, end = 2, failure = 3 };

struct Frame {
  std::uint64_t transfer;
  FrameKind kind;
  std::uint32_t bytes;  // that follow: of pages, or of a text
};

static_assert(sizeof(Greeting) == 32 && sizeof(Introduction) == 48 && sizeof(Request) == 16 && sizeof(Part) == 8 &&
              sizeof(Frame) == 16);

Nonce random_nonce();
std::uint64_t random_number();

// The 32 bytes of a token, which is written as 64 hexadecimal digits; throws std::invalid_argument.
std::vector<std::byte> parse_token(const std::string& text);

enum class Role : std::uint8_t { client, server };

Digest proof_of(std::span<const std::byte> token, Role role, const Nonce& client, const Nonce& server);

// What both sides must agree on, before a page is asked for.
struct Layout {
  struct Pool {
    std::string name;
    std::uint64_t page_bytes;
    std::uint64_t num_pages;
  };

  std::string description;  // what the pages mean: the model, the dtype, tokens a page …
  std::vector<Pool> pools;

  // Throws std::invalid_argument for a description or names that do not fit into lines.
  Layout(std::string description, const PoolTable& pools);
  // Throws std::invalid_argument for what is none.
  static Layout parse(std::string_view text);

  std::string text() const;
  // What differs, with both values; nothing if pages can be read. Each side may have pools that the other lacks.
  std::optional<std::string> difference_from(const Layout& there) const;

 private:
  Layout() = default;
};

// The bytes of a request, with the pools' places in a layout, and without the transfer's number.
std::vector<std::byte> encode_read(const std::vector<PageCopy>& copies, const Layout& layout);
void set_transfer(std::vector<std::byte>& request, std::uint64_t transfer);
std::vector<std::byte> encode_forget(std::uint64_t transfer);

struct ReadPart {
  std::uint32_t pool;
  std::vector<std::int32_t> pages;
  std::vector<std::uint64_t> epochs;
};

// Throws std::invalid_argument for bytes that are no parts of a request.
std::vector<ReadPart> parse_parts(std::span<const std::byte> bytes);

}  // namespace ipc::net
