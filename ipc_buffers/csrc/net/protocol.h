#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transfers.h"

// How pages are asked for over TCP, once both sides have introduced themselves
// (unifiedserve/carriers/tcp_handshake.py). Numbers are little-endian, as all machines that run this are.
//
//   client                                    server
//   Request, parts …                                            many at once
//                                             Frame, bytes of pages …; last an end, or what failed
//
// After their end the frames of one request prove that its pages were in their epochs when the last byte of them had
// been read.
namespace ipc::net {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kMostRequest = 32 << 20;  // bytes, two million pages
constexpr std::size_t kMostParts = 64;
constexpr std::size_t kMostText = 4 << 10;
constexpr std::size_t kMostFrame = 1 << 20;

enum class RequestKind : std::uint32_t { read = 1, forget = 2 };

struct Request {
  std::uint64_t transfer;
  RequestKind kind;
  std::uint32_t bytes;  // of its parts: each a Part, page numbers, epochs
};

struct Part {
  std::uint32_t pool;  // by its place among the client's pools
  std::uint32_t pages;
};

enum class FrameKind : std::uint32_t { pages = 1, end = 2, failure = 3 };

struct Frame {
  std::uint64_t transfer;
  FrameKind kind;
  std::uint32_t bytes;  // that follow: of pages, or of a text
};

static_assert(sizeof(Request) == 16 && sizeof(Part) == 8 && sizeof(Frame) == 16);

// A pool of a client, as a server sees it.
struct ServedPool {
  std::string name;
  std::shared_ptr<PagePool> pool;  // null if the server has none of this name
};

// The bytes of a request, without the transfer's number; a client numbers its pools in their order.
std::vector<std::byte> encode_read(const std::vector<PageCopy>& copies, const PoolTable& pools);
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
