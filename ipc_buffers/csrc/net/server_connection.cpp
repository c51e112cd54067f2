#include "server_connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace ipc::net {
namespace {

constexpr std::size_t kReceived = 64 << 10;  // at once
constexpr std::size_t kShare = 4 << 20;      // of bytes to send before others have their turn
constexpr std::size_t kMostReplies = 4096;   // asked for and not answered yet
constexpr std::size_t kMostKept = 64 << 20;  // bytes of requests

}  // namespace

ServerConnection::ServerConnection(Socket socket, std::vector<ServedPool> pools, TimePoint::duration patience)
    : socket_(std::move(socket)), pools_(std::move(pools)), patience_(patience) {}

TimePoint ServerConnection::deadline() const {
  auto deadline = TimePoint::max();
  if (!inbox_.is_empty()) deadline = receiving_since_ + patience_;
  if (is_behind()) deadline = TimePoint::max();  // it is not the client that takes its time
  if (blocked_) deadline = std::min(deadline, sending_since_ + patience_);
  return deadline;
}

// Requests are not read while too many wait.
bool ServerConnection::is_behind() const { return replies_.size() >= kMostReplies || kept_bytes_ >= kMostKept; }

std::uint32_t ServerConnection::awaited() const {
  const bool sends = next_part_ < parts_.size() || !replies_.empty();
  return (is_behind() ? 0U : std::uint32_t{EPOLLIN}) | (sends ? std::uint32_t{EPOLLOUT} : 0U);
}

void ServerConnection::go_on(std::uint32_t ready) {
  if ((ready & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive();
  understand();
  send();
  if (!is_behind()) understand();
}

void ServerConnection::receive() {
  if (is_behind()) return;
  if (inbox_.is_empty()) receiving_since_ = now();
  inbox_.fill(socket_, kReceived);
}

void ServerConnection::understand() {
  while (!is_behind() && take_request()) receiving_since_ = now();
}

bool ServerConnection::take_request() {
  const auto request = inbox_.peek<Request>();
  if (!request) return false;
  if (request->bytes > kMostRequest) throw NetError("asks at too great a length");
  const auto whole = sizeof(Request) + request->bytes;
  if (inbox_.size() < whole) return false;
  switch (request->kind) {
    case RequestKind::read:
      replies_.emplace_back(request->transfer, parse_parts(inbox_.after(sizeof(Request), request->bytes)), pools_);
      request_bytes_.push_back(whole);
      kept_bytes_ += whole;
      break;
    case RequestKind::forget:
      forget(request->transfer);
      break;
    default:
      throw NetError("asks for what there is not");
  }
  inbox_.drop(whole);
  return true;
}

void ServerConnection::forget(std::uint64_t transfer) {
  const auto found = std::ranges::find(replies_, transfer, &PageReply::transfer);
  if (found == replies_.end()) return;
  const auto place = found - replies_.begin();
  if (place == 0 && frame_is_of_first_) {
    forgotten_ = true;  // when its frame is sent to the end
    return;
  }
  kept_bytes_ -= request_bytes_[static_cast<std::size_t>(place)];
  request_bytes_.erase(request_bytes_.begin() + place);
  replies_.erase(found);
}

// Bytes to be sent, kept until they are.
void ServerConnection::put(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  words_.emplace_back(bytes.begin(), bytes.end());
  parts_.push_back(part_of(std::span(words_.back())));
}

// Puts together what is sent next: the end of a reply and the first frame of the one after it go at once.
bool ServerConnection::gather() {
  while (!replies_.empty() && !frame_is_of_first_) {
    auto& reply = replies_.front();
    const auto place = parts_.size();
    put(bytes_of(Frame{}));
    const auto bytes = forgotten_ ? 0 : reply.append_frame(parts_);
    if (bytes > 0) {
      const Frame frame{reply.transfer(), FrameKind::pages, static_cast<std::uint32_t>(bytes)};
      std::ranges::copy(bytes_of(frame), words_.back().begin());
      frame_is_of_first_ = true;
      break;
    }
    const auto text = std::as_bytes(std::span(reply.failure())).first(std::min(reply.failure().size(), kMostText));
    const Frame frame{reply.transfer(), text.empty() ? FrameKind::end : FrameKind::failure,
                      static_cast<std::uint32_t>(text.size())};
    if (forgotten_) {
      parts_.resize(place);
      words_.pop_back();
    } else {
      std::ranges::copy(bytes_of(frame), words_.back().begin());
      put(text);
    }
    forgotten_ = false;
    kept_bytes_ -= request_bytes_.front();
    request_bytes_.pop_front();
    replies_.pop_front();
  }
  return !parts_.empty();
}

void ServerConnection::send() {
  for (std::size_t share = 0; share < kShare;) {
    if (next_part_ == parts_.size()) {
      if (frame_is_of_first_) {
        replies_.front().check_sent();
        frame_is_of_first_ = false;
      }
      parts_.clear();
      words_.clear();
      next_part_ = 0;
      if (!gather()) break;
      sending_since_ = now();
    }
    const bool more_follows = frame_is_of_first_ && !forgotten_;  // the reply's end, if nothing else
    const auto sent = socket_.send(std::span(parts_).subspan(next_part_), more_follows);
    blocked_ = !sent;
    if (!sent) return;
    advance(parts_, next_part_, *sent);
    share += *sent;
  }
  blocked_ = false;
}

}  // namespace ipc::net
