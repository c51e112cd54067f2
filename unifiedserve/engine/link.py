"""Connect the engine to the message queues: a thread sends and one listens."""

import logging
import queue
import threading
from collections.abc import Callable

from ipc_buffers import MessageQueue
from unifiedserve.errors import RequestError
from unifiedserve.memory.shared import ENGINE_INBOX, SharedMemory
from unifiedserve.messages.wire import Message, Shutdown, pack, unpack

_log = logging.getLogger(__name__)
_MOST_MESSAGES = 1024


class Link:
    """Send in order without ever blocking the caller. `on_messages` hears (in a thread) what comes in.

    `on_failure` is called, with the reason, if one of its threads cannot go on.
    """

    def __init__(
        self,
        memory: SharedMemory,
        on_messages: Callable[[list[Message]], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._memory = memory
        self._on_messages = on_messages
        self._on_failure = on_failure
        self._closing = False
        self._outgoing: queue.SimpleQueue[tuple[str, MessageQueue, bytes] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._guarded, args=(loop,), name=loop.__name__, daemon=True)
            for loop in (self._send_all, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, instance: str, message: Message) -> None:
        """Queue a message for an instance. Raises RequestError for one that is too large for its inbox."""
        data, inbox = pack(message), self._memory.inboxes[instance]
        limit = inbox.max_message
        if len(data) > limit:
            raise RequestError(f"the request takes {len(data)} bytes without its media; at most {limit} are possible")
        self._outgoing.put((instance, inbox, data))

    def close(self) -> None:
        """Stop both threads; unsent messages are dropped. Safe to call twice."""
        if self._closing:
            return
        self._closing = True
        self._outgoing.put(None)
        self._memory.inboxes[ENGINE_INBOX].send(pack(Shutdown()))
        for thread in self._threads:
            thread.join()

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except Exception as error:
            _log.exception("%s failed", loop.__name__)
            self._on_failure(f"internal error in the engine's message queues: {error}")

    def _send_all(self) -> None:
        while (item := self._outgoing.get()) is not None:
            self._send(*item)

    def _send(self, instance: str, inbox: MessageQueue, data: bytes) -> None:
        """Send to an instance, unless its worker has died since: messages for that are not for the next one."""
        while not self._closing and inbox is self._memory.inboxes[instance]:
            try:
                inbox.send(data, timeout=0.5)
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
