#include "message_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ipc {

struct MessageQueue::Ring {
  std::uint64_t capacity;
  alignas(64) RobustMutex senders;
  alignas(64) WaitablePosition tail;
  alignas(64) RobustMutex receivers;
  alignas(64) WaitablePosition head;
};

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kUnit = 8;  // lengths lie at multiples of it, so they never wrap around
constexpr std::int64_t kMinCapacity = 64;
constexpr std::int64_t kMaxCapacity = std::int64_t{1} << 40;
constexpr auto kLockGrace = milliseconds(1);  // a poll waits this long for another process's memcpy

std::size_t record_bytes(std::size_t message_bytes) { return kUnit + (message_bytes + kUnit - 1) / kUnit * kUnit; }

std::unique_lock<RobustMutex> lock_until(RobustMutex& mutex, TimePoint deadline) {
  if (!mutex.try_lock() && !mutex.lock_until(std::max(deadline, now() + kLockGrace))) return {};
  return std::unique_lock(mutex, std::adopt_lock);
}

}  // namespace

void MessageView::copy_to(std::byte* target) const {
  std::memcpy(target, first.data(), first.size());
  if (!second.empty()) std::memcpy(target + first.size(), second.data(), second.size());
}

std::shared_ptr<MessageQueue> MessageQueue::create(const std::string& name, std::int64_t capacity) {
  if (capacity < kMinCapacity || capacity > kMaxCapacity) {
    throw std::invalid_argument("message queue '" + name + "': capacity must be between " +
                                std::to_string(kMinCapacity) + " and " + std::to_string(kMaxCapacity) + " bytes, got " +
                                std::to_string(capacity));
  }
  const auto bytes = record_bytes(static_cast<std::size_t>(capacity)) - kUnit;
  return std::make_shared<MessageQueue>(
      Arena::create(name, ArenaKind::message_queue, sizeof(Ring) + bytes, [bytes](std::span<std::byte> payload) {
        auto& ring = *reinterpret_cast<Ring*>(payload.data());
        ring.capacity = bytes;
        ring.senders.initialise();
        ring.receivers.initialise();
      }));
}

std::shared_ptr<MessageQueue> MessageQueue::attach(const std::string& name) {
  return std::make_shared<MessageQueue>(Arena::attach(name, ArenaKind::message_queue));
}

MessageQueue::MessageQueue(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {
  const auto payload = arena_->payload();
  ring_ = reinterpret_cast<Ring*>(payload.data());
  if (payload.size() < sizeof(Ring) || payload.size() - sizeof(Ring) != ring_->capacity) {
    throw ArenaError("message queue '" + identity().name + "' is damaged: its size does not match its arena");
  }
  bytes_ = payload.subspan(sizeof(Ring), ring_->capacity);
}

void MessageQueue::check_size(std::span<const std::byte> message) const {
  if (message.size() > max_message()) {
    throw MessageTooLarge("message of " + std::to_string(message.size()) + " bytes; queue '" + identity().name +
                          "' of " + std::to_string(capacity()) + " bytes takes messages of up to " +
                          std::to_string(max_message()) + " bytes");
  }
}

void MessageQueue::copy_in(std::uint64_t position, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto offset = static_cast<std::size_t>(position % capacity());
  const auto before_wrap = std::min(bytes.size(), capacity() - offset);
  std::memcpy(bytes_.data() + offset, bytes.data(), before_wrap);
  std::memcpy(bytes_.data(), bytes.data() + before_wrap, bytes.size() - before_wrap);
}

MessageView MessageQueue::message_at(std::uint64_t position, std::uint64_t end) const {
  if (position % kUnit != 0 || end % kUnit != 0 || end - position > capacity()) {
    throw ArenaError("message queue '" + identity().name + "' is damaged: positions " + std::to_string(position) +
                     " and " + std::to_string(end));
  }
  const auto length_offset = static_cast<std::size_t>(position % capacity());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes_.data() + length_offset, sizeof length);
  if (length > max_message() || record_bytes(length) > end - position) {
    throw ArenaError("message queue '" + identity().name + "' is damaged: a message of " + std::to_string(length) +
                     " bytes at position " + std::to_string(position));
  }
  const auto offset = static_cast<std::size_t>((position + kUnit) % capacity());
  const auto before_wrap = std::min<std::size_t>(length, capacity() - offset);
  return {bytes_.subspan(offset, before_wrap), bytes_.first(length - before_wrap)};
}

bool MessageQueue::put(std::span<const std::byte> message) {
  const auto tail = ring_->tail.load();
  const auto needed = record_bytes(message.size());
  if (tail + needed - ring_->head.load() > capacity()) return false;
  const std::uint64_t length = message.size();
  copy_in(tail, std::as_bytes(std::span(&length, 1)));
  copy_in(tail + kUnit, message);
  ring_->tail.advance(tail + needed);
  return true;
}

bool MessageQueue::sent(std::unique_lock<RobustMutex> lock, std::span<const std::byte> message) {
  if (!lock || !put(message)) return false;
  lock.unlock();
  ring_->tail.wake();
  return true;
}

bool MessageQueue::try_send(std::span<const std::byte> message) {
  check_size(message);
  return sent(std::unique_lock(ring_->senders, std::try_to_lock), message);
}

bool MessageQueue::send_if_room(std::span<const std::byte> message) {
  check_size(message);
  return sent(lock_until(ring_->senders, TimePoint::max()), message);
}

bool MessageQueue::send(std::span<const std::byte> message, TimePoint deadline) {
  check_size(message);
  for (;;) {
    const auto head = ring_->head.load();
    auto lock = lock_until(ring_->senders, deadline);
    if (!lock) return false;
    if (sent(std::move(lock), message)) return true;
    if (!wait_for_change(ring_->head, head, deadline)) return false;
  }
}

std::size_t MessageQueue::take_some(std::size_t limit, const Take& take) {
  const auto tail = ring_->tail.load();
  auto head = ring_->head.load();
  std::size_t taken = 0;
  for (; head != tail && taken < limit; ++taken) {
    const auto message = message_at(head, tail);
    take(message);
    head += record_bytes(message.size());
  }
  if (taken != 0) ring_->head.advance(head);
  return taken;
}

std::size_t MessageQueue::taken(std::unique_lock<RobustMutex> lock, std::size_t limit, const Take& take) {
  const auto count = take_some(limit, take);
  lock.unlock();
  if (count != 0) ring_->head.wake();
  return count;
}

std::size_t MessageQueue::try_receive(std::size_t limit, const Take& take) {
  std::unique_lock lock(ring_->receivers, std::try_to_lock);
  return lock ? taken(std::move(lock), limit, take) : 0;
}

std::size_t MessageQueue::receive(std::size_t limit, const Take& take, TimePoint deadline) {
  for (;;) {
    const auto tail = ring_->tail.load();
    if (ring_->head.load() == tail && !wait_for_change(ring_->tail, tail, deadline)) return 0;
    auto lock = lock_until(ring_->receivers, deadline);
    if (!lock) return 0;
    if (const auto count = taken(std::move(lock), limit, take); count != 0) return count;
  }
}

std::uint64_t MessageQueue::pending() {
  const auto lock = lock_until(ring_->receivers, TimePoint::max());
  const auto tail = ring_->tail.load();
  std::uint64_t count = 0;
  for (auto head = ring_->head.load(); head != tail; ++count) {
    head += record_bytes(message_at(head, tail).size());
  }
  return count;
}

bool MessageQueue::wait_for_change(WaitablePosition& position, std::uint64_t seen, TimePoint deadline) {
  const auto start = now();
  if (start >= deadline) return position.load() != seen;
  if (spin_.is_worth_it() && spin_.until_changed(position, seen, std::min(deadline, start + Spin::kLongest))) {
    return true;
  }
  const bool woken = position.wait(seen, deadline);
  spin_.learn(woken ? now() - start : TimePoint::duration::max());
  return woken;
}

}  // namespace ipc
