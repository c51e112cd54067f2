// Operations on a queue, beside a model of it that is a deque: what is received is what was sent, in order.
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <string>

#include "choices.h"
#include "message_queue.h"

namespace {

using ipc::fuzz::Choices;
using ipc::fuzz::require;
using Message = std::vector<std::byte>;

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

Message copy_of(const ipc::MessageView& view) {
  Message copy(view.size());
  if (!copy.empty()) view.copy_to(copy.data());
  return copy;
}

class Run {
 public:
  Run(Choices choices, const std::string& name)
      : choices_(choices), queue_(ipc::MessageQueue::create(name, choices_.between(64, 4096))) {}
  ~Run() { queue_->identity().unlink(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void go() {
    while (choices_.left()) {
      const auto operation = choices_.byte() % 8;
      if (operation < 4)
        send();
      else if (operation < 6)
        receive();
      else if (operation == 6)
        receive_and_fail();
      else
        attach_anew();
      require(queue_->pending() == model_.size());
    }
  }

 private:
  void send() {
    const auto size = choices_.between(0, static_cast<std::int64_t>(queue_->max_message()) + 2);
    const Message message(static_cast<std::size_t>(size), static_cast<std::byte>(choices_.byte()));
    try {
      if (queue_->try_send(message))
        model_.push_back(message);
      else
        require(!model_.empty());  // nobody else is at work: it is full
    } catch (const ipc::MessageTooLarge&) {
      require(message.size() > queue_->max_message());
    }
  }

  void receive() {
    const auto limit = static_cast<std::size_t>(choices_.between(0, 5));
    const auto expected = std::min(limit, model_.size());
    const auto taken = queue_->try_receive(limit, [&](ipc::MessageView view) {
      require(!model_.empty() && copy_of(view) == model_.front());
      model_.pop_front();
    });
    require(taken == expected);
  }

  // A receiver that fails at its n-th message: none of them counts as received.
  void receive_and_fail() {
    auto left = choices_.between(0, 3);
    auto expected = model_.begin();
    try {
      queue_->try_receive(model_.size(), [&](ipc::MessageView view) {
        require(copy_of(view) == *expected++);
        if (left-- == 0) throw Refused("enough");
      });
      model_.clear();
    } catch (const Refused&) {
    }
  }

  void attach_anew() { queue_ = ipc::MessageQueue::attach(queue_->identity().name); }

  Choices choices_;
  std::shared_ptr<ipc::MessageQueue> queue_;
  std::deque<Message> model_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Run(Choices({data, size}), "fuzz-queue-" + std::to_string(getpid())).go();
  return 0;
}
