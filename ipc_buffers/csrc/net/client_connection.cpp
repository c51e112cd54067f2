#include "client_connection.h"

#include <algorithm>
#include <string_view>

namespace ipc::net {

std::uint32_t ClientConnection::wanted() const {
  if (phase == Phase::connecting) return EPOLLOUT;
  return EPOLLIN | (blocked ? std::uint32_t{EPOLLOUT} : 0U);
}

bool ClientConnection::understand(std::span<const std::byte> token, const Layout& layout,
                                  std::vector<std::byte>& answer) {
  if (phase == Phase::greeting && !take_greeting(token, layout, answer)) return false;
  if (phase == Phase::introduction && !take_introduction(token, layout)) return false;
  if (!inbox.is_empty()) throw NetError("answers before it was asked");
  return true;
}

bool ClientConnection::take_greeting(std::span<const std::byte> token, const Layout& layout,
                                     std::vector<std::byte>& answer) {
  const auto known = std::min(inbox.size(), kMagic.size());
  if (!std::ranges::equal(inbox.after(0, known), std::as_bytes(std::span(kMagic)).first(known))) {
    throw NetError("serves something else than pages");
  }
  const auto greeting = inbox.peek<Greeting>();
  if (!greeting) return false;
  if (greeting->version != kVersion) {
    throw NetError("speaks version " + std::to_string(greeting->version) + " of the protocol, and this side " +
                   std::to_string(kVersion));
  }
  theirs = greeting->nonce;
  const auto text = layout.text();
  const Introduction own{proof_of(token, Role::client, ours, theirs), address.incarnation, Verdict::welcome,
                         static_cast<std::uint32_t>(text.size())};
  const auto head = bytes_of(own), tail = std::as_bytes(std::span(text));
  answer.assign(head.begin(), head.end());
  answer.insert(answer.end(), tail.begin(), tail.end());
  inbox.drop(sizeof(Greeting));
  phase = Phase::introduction;
  return true;
}

bool ClientConnection::take_introduction(std::span<const std::byte> token, const Layout& layout) {
  const auto introduction = inbox.peek<Introduction>();
  if (!introduction) return false;
  if (introduction->verdict == Verdict::wrong_token) throw NetError("has another token than this side");
  if (!equal_in_constant_time(introduction->proof, proof_of(token, Role::server, ours, theirs))) {
    throw NetError("does not have the token, which is why nothing is read from it");
  }
  if (introduction->layout_bytes > kMostLayout) throw NetError("describes itself at too great a length");
  if (inbox.size() < sizeof(Introduction) + introduction->layout_bytes) return false;
  const auto text = inbox.after(sizeof(Introduction), introduction->layout_bytes);
  const auto there = Layout::parse({reinterpret_cast<const char*>(text.data()), text.size()});
  if (const auto difference = layout.difference_from(there)) throw NetError(*difference);
  if (introduction->verdict != Verdict::welcome || introduction->incarnation != address.incarnation) {
    throw NetError("is another server than the one that was there, whose pages are gone");
  }
  inbox.drop(sizeof(Introduction) + introduction->layout_bytes);
  phase = Phase::open;
  return true;
}

}  // namespace ipc::net
