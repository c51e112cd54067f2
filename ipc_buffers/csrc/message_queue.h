#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>

#include "arena.h"
#include "futex.h"
#include "robust_mutex.h"
#include "spin.h"

namespace ipc {

struct MessageTooLarge : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// A message as it lies in the ring: `second` is what wrapped around.
struct MessageView {
  std::span<const std::byte> first;
  std::span<const std::byte> second;

  std::size_t size() const { return first.size() + second.size(); }
  void copy_to(std::byte* target) const;
};

// Bounded ring of variable-length messages between processes.
//
// Positions in the ring only grow: bytes [head, tail) hold committed messages, each a 64-bit length and the payload,
// padded to 8 bytes. A sender writes behind `tail` under the senders' lock and commits with one store to `tail`, a
// receiver reads under the receivers' lock and frees with one store to `head`. So a process killed anywhere leaves
// the ring right: a half-written message is overwritten, a half-received one is delivered to the next receiver.
class MessageQueue {
 public:
  using Take = std::function<void(MessageView)>;

  static std::shared_ptr<MessageQueue> create(const std::string& name, std::int64_t capacity);
  static std::shared_ptr<MessageQueue> attach(const std::string& name);

  explicit MessageQueue(std::shared_ptr<Arena> arena);

  const ArenaIdentity& identity() const { return arena_->identity(); }
  std::size_t capacity() const { return bytes_.size(); }
  std::size_t max_message() const { return bytes_.size() / 4; }

  // Never blocks: false if the ring is full or another sender is at work.
  bool try_send(std::span<const std::byte> message);
  // Waits for other senders, but not for room: false if the ring is full.
  bool send_if_room(std::span<const std::byte> message);
  // Waits for room; false at the deadline, or before when a signal arrives.
  bool send(std::span<const std::byte> message, TimePoint deadline);

  // Passes up to `limit` messages to `take` and returns how many; 0 if there are none or another receiver is at work.
  // If `take` throws, none of them counts as received.
  std::size_t try_receive(std::size_t limit, const Take& take);
  // Waits for the first message; 0 at the deadline, or before when a signal arrives.
  std::size_t receive(std::size_t limit, const Take& take, TimePoint deadline);

  std::uint64_t pending();

  // Throws MessageTooLarge.
  void check_size(std::span<const std::byte> message) const;

 private:
  struct Ring;

  // Puts a message under the senders' lock, if it is held and there is room, and wakes receivers after it.
  bool sent(std::unique_lock<RobustMutex> lock, std::span<const std::byte> message);
  // Takes under the receivers' lock, which must be held, and wakes senders after it.
  std::size_t taken(std::unique_lock<RobustMutex> lock, std::size_t limit, const Take& take);
  bool put(std::span<const std::byte> message);
  std::size_t take_some(std::size_t limit, const Take& take);
  MessageView message_at(std::uint64_t position, std::uint64_t end) const;
  void copy_in(std::uint64_t position, std::span<const std::byte> bytes);
  bool wait_for_change(WaitablePosition& position, std::uint64_t seen, TimePoint deadline);

  std::shared_ptr<Arena> arena_;
  Ring* ring_;
  std::span<std::byte> bytes_;
  Spin spin_;
};

}  // namespace ipc
