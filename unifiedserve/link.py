"""The engine's end of the message queues: a thread that sends and one that listens."""

import queue
import threading
from collections.abc import Callable

from unifiedserve.memory.shared import ENGINE_INBOX, SharedMemory
from unifiedserve.messages import Message, Shutdown, pack, unpack

_MOST_MESSAGES = 1024


class Link:
    """Sends in order without ever blocking the caller, and calls `on_messages` (in a thread) with what comes in."""

    def __init__(self, memory: SharedMemory, on_messages: Callable[[list[Message]], None]) -> None:
        self._memory = memory
        self._on_messages = on_messages
        self._outgoing: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._send_all, name="engine-send", daemon=True),
            threading.Thread(target=self._listen, name="engine-listen", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def send(self, instance: str, message: Message) -> None:
        """Queue a message for an instance."""
        self._outgoing.put((instance, pack(message)))

    def close(self) -> None:
        """Stop both threads; what has not been sent is dropped."""
        self._closing = True
        self._outgoing.put(None)
        self._memory.inboxes[ENGINE_INBOX].send(pack(Shutdown()))
        for thread in self._threads:
            thread.join()

    _closing = False

    def _send_all(self) -> None:
        while (item := self._outgoing.get()) is not None:
            self._send(*item)

    def _send(self, instance: str, data: bytes) -> None:
        while not self._closing:
            try:
                self._memory.inboxes[instance].send(data, timeout=0.5)
            except TimeoutError:
                continue  # the worker is behind: wait for it, unless we are told to stop
            return

    def _listen(self) -> None:
        inbox = self._memory.inboxes[ENGINE_INBOX]
        while True:
            messages = [unpack(data) for data in inbox.receive_many(_MOST_MESSAGES)]
            if any(isinstance(message, Shutdown) for message in messages):
                return
            if messages:
                self._on_messages(messages)
