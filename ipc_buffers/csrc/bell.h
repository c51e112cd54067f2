#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "message_queue.h"

namespace ipc {

// Wakes whoever waits for messages of a queue, by one that says that there is something to look for.
class Bell {
 public:
  // Throws MessageTooLarge.
  Bell(std::shared_ptr<MessageQueue> queue, std::vector<std::byte> message)
      : queue_(std::move(queue)), message_(std::move(message)) {
    queue_->check_size(message_);
  }

  // Any thread may call it. A queue without room has no reader that sleeps.
  void ring() const { queue_->send_if_room(message_); }

 private:
  std::shared_ptr<MessageQueue> queue_;
  std::vector<std::byte> message_;
};

}  // namespace ipc
