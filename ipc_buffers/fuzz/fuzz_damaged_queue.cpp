// A queue whose messages were overwritten: it says that it is damaged, or gives bytes of its own ring, never others.
#include <unistd.h>

#include <cstring>
#include <string>

#include "arena.h"
#include "choices.h"
#include "message_queue.h"

namespace {

using ipc::fuzz::Choices;
using ipc::fuzz::require;

void fill(ipc::MessageQueue& queue, Choices& choices) {
  const std::vector<std::byte> message(queue.max_message());
  for (auto left = choices.between(0, 20); left > 0; --left) {
    const auto size = static_cast<std::size_t>(choices.between(0, static_cast<std::int64_t>(message.size())));
    if (!queue.try_send(std::span(message).first(size))) queue.try_receive(1, [](ipc::MessageView) {});
  }
}

void damage(std::span<std::byte> ring, Choices& choices) {
  while (choices.left()) {
    const auto value = choices.byte() < 64 ? choices.number() : static_cast<std::uint64_t>(choices.between(0, 600));
    const auto place = static_cast<std::size_t>(choices.between(0, static_cast<std::int64_t>(ring.size() / 8) - 1)) * 8;
    std::memcpy(ring.data() + place, &value, sizeof value);
  }
}

void read_all(ipc::MessageQueue& queue) {
  const std::byte* lowest = nullptr;
  try {
    queue.pending();
    while (queue.try_receive(3, [&](ipc::MessageView view) {
      require(view.size() <= queue.max_message());
      require(lowest == nullptr || view.first.data() + view.first.size() <= lowest + queue.capacity());
      if (!view.second.empty()) lowest = view.second.data();  // what wraps around begins where the ring does
      std::vector<std::byte> copy(view.size());
      if (!copy.empty()) view.copy_to(copy.data());
    }) != 0) {
    }
  } catch (const ipc::ArenaError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Choices choices({data, size});
  const auto queue = ipc::MessageQueue::create("fuzz-damaged-" + std::to_string(getpid()), choices.between(64, 2048));
  fill(*queue, choices);
  const auto arena = ipc::Arena::attach(queue->identity().name, ipc::ArenaKind::message_queue);
  damage(arena->payload().last(queue->capacity()), choices);
  read_all(*queue);
  queue->identity().unlink();
  return 0;
}
