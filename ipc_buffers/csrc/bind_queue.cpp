#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <optional>

#include "bindings.h"
#include "message_queue.h"
#include "native/held_bytes.h"
#include "native/interruptible_wait.h"
#include "native/released_gil.h"

namespace py = pybind11;

namespace ipc {
namespace {

using QueueHandle = Handle<MessageQueue>;

// How long a signal that reached another thread, or came just before this one fell asleep, may wait.
constexpr auto kSignalCheck = std::chrono::milliseconds(200);

TimePoint deadline_after(std::optional<double> timeout) {
  if (timeout && !(*timeout >= 0)) {
    throw std::invalid_argument("timeout must be at least 0 seconds, got " + std::to_string(*timeout));
  }
  return native::deadline_after(timeout);
}

// Calls `attempt(queue, gil, until)` without the GIL until it succeeds, the deadline passes, the handle is closed or a
// signal handler raises.
template <typename Attempt>
bool keep_trying(const QueueHandle& self, TimePoint deadline, const Attempt& attempt) {
  return native::wait_interruptibly(deadline, kSignalCheck, [&](TimePoint until) {
    const auto queue = self.get();
    native::ReleasedGil gil;
    return attempt(*queue, gil, until);
  });
}

py::bytes to_bytes(MessageView message) {
  auto* object = PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(message.size()));
  if (object == nullptr) throw py::error_already_set();
  message.copy_to(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(object)));
  return py::reinterpret_steal<py::bytes>(object);
}

void send(const QueueHandle& self, const native::BytesLike& message, std::optional<double> timeout) {
  const native::HeldBytes bytes(message);
  if (self.get()->try_send(bytes.span())) return;
  const bool sent = keep_trying(self, deadline_after(timeout),
                                [&](auto& queue, auto&, TimePoint until) { return queue.send(bytes.span(), until); });
  if (sent) return;
  PyErr_Format(PyExc_TimeoutError, "message queue '%s' stayed full for %S seconds", self.name().c_str(),
               py::cast(timeout).ptr());
  throw py::error_already_set();
}

// Messages for Python are made while they still lie in the ring, so that an error loses none.
void receive_into(const QueueHandle& self, std::size_t limit, std::optional<double> timeout,
                  const MessageQueue::Take& take) {
  if (self.get()->try_receive(limit, take) != 0) return;
  keep_trying(self, deadline_after(timeout), [&](auto& queue, auto& gil, TimePoint until) {
    return queue.receive(
               limit,
               [&](MessageView message) {
                 gil.reacquire();
                 take(message);
               },
               until) != 0;
  });
}

std::optional<py::bytes> receive(const QueueHandle& self, std::optional<double> timeout) {
  std::optional<py::bytes> received;
  receive_into(self, 1, timeout, [&](MessageView message) { received = to_bytes(message); });
  return received;
}

py::typing::List<py::bytes> receive_many(const QueueHandle& self, std::int64_t limit, std::optional<double> timeout) {
  if (limit < 1) throw std::invalid_argument("limit must be at least 1, got " + std::to_string(limit));
  py::typing::List<py::bytes> received;
  receive_into(self, static_cast<std::size_t>(limit), timeout,
               [&](MessageView message) { received.append(to_bytes(message)); });
  return received;
}

std::uint64_t pending(const QueueHandle& self) {
  const auto queue = self.get();
  const native::ReleasedGil gil;
  return queue->pending();
}

}  // namespace

void bind_message_queue(py::module_& module) {
  py::class_<QueueHandle>(module, "MessageQueue",
                          R"(Bounded queue of messages between processes, in the order they were sent.

Any number of senders; several receivers share the messages. A sender that is killed leaves no half message, a receiver
that is killed while it takes a message leaves it to the next one. Waiting threads sleep in the kernel, without the GIL,
and Python's signal handlers run.)")
      .def_static(
          "create",
          [](const std::string& name, std::int64_t capacity) {
            const native::ReleasedGil released;
            return QueueHandle(MessageQueue::create(name, capacity));
          },
          py::arg("name"), py::arg("capacity"),
          "Create a queue of `capacity` bytes, 8 to 15 of which each message needs for itself; raises as "
          "`Arena.create`.")
      .def_static(
          "attach", [](const std::string& name) { return QueueHandle(MessageQueue::attach(name)); }, py::arg("name"),
          "Map a queue of another handle, by name; raises as `Arena.attach`.")
      .def_property_readonly("name", &QueueHandle::name)
      .def_property_readonly(
          "capacity", [](const QueueHandle& self) { return self.get()->capacity(); }, "Bytes.")
      .def_property_readonly(
          "max_message", [](const QueueHandle& self) { return self.get()->max_message(); },
          "Bytes: a quarter of the capacity.")
      .def("send", &send, py::arg("message"), py::arg("timeout") = py::none(),
           R"(Wait up to `timeout` seconds for room (None: forever), and send.

Raises TimeoutError if there was none, MessageTooLarge if there never will be.)")
      .def("receive", &receive, py::arg("timeout") = py::none(),
           "Return the next message; None if there is none within `timeout` seconds (None: waits forever, 0: looks "
           "once).")
      .def("receive_many", &receive_many, py::arg("limit"), py::arg("timeout") = py::none(),
           "Wait for a first message as `receive`, and return what is there, up to `limit` messages.")
      .def("pending", &pending, "Return the number of messages in the queue; counts them, one by one.")
      .def("close", &QueueHandle::close,
           "Close this handle. Idempotent. Other threads that wait on it raise ArenaError.")
      .def("unlink", &QueueHandle::unlink);
}

}  // namespace ipc
