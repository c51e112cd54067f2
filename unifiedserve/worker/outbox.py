"""Send from a worker to stages, here or in other workers, and to the engine."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from ipc_buffers import Bell, MessageQueue
from unifiedserve.errors import ErrorKind
from unifiedserve.memory.shared import ENGINE_INBOX
from unifiedserve.messages.wire import (
    Abort,
    Drained,
    Failed,
    Heard,
    Message,
    OutputReady,
    PagesFreed,
    PrefillRequest,
    pack,
    unpack,
)
from unifiedserve.placement import ENGINE, Placement, Stage

_PATIENCE_SECONDS = 0.05
_MOST_MESSAGES = 256


class Outbox:
    """Reach the hosts of all stages from one worker.

    The contents that a message tells of must be there when it arrives: `fence` returns when the device has done it.
    """

    def __init__(
        self, placement: Placement, instance: str, inboxes: Mapping[str, MessageQueue], fence: Callable[[], None]
    ) -> None:
        self._placement = placement
        self._instance = instance
        self._inboxes = inboxes
        self._fence = fence
        self._local: deque[Message] = deque()
        self._joining: Counter[tuple[int, Stage]] = Counter()  # aborts that have come, if more are to come
        self._early: list[bytes] = []
        self._heirs: dict[int, str] = {}  # the decoder of a request (uid), where its route names another
        #: has `receive` return
        self.bell = Bell(inboxes[instance], pack(OutputReady()))

    def placed(self, placement: Placement) -> None:
        """Send to the hosts that this placement names from now on."""
        self._placement = placement

    def send(self, host: str, message: Message) -> None:
        """Send to an instance; to this very one without a detour."""
        if host == self._instance:
            self._local.append(message)
        else:
            self._put(host, message)

    def tell_freed(self, stage: Stage, memory: str, *, oneself: bool = False) -> None:
        """Tell hosts of `stage` of new pages in a memory, this one if it asks."""
        for host in self._placement.takers(stage, memory):
            if oneself or host != self._instance:
                self.send(host, PagesFreed())

    def take_local(self) -> Iterator[Message]:
        """Yield what this worker's stages have sent to each other, and what they send meanwhile."""
        while self._local:
            yield self._local.popleft()

    def receive(self, timeout: float | None) -> list[bytes]:
        """Return the messages that came in; wait up to `timeout` seconds (None: for ever) for the first one."""
        early, self._early = self._early, []
        return early + self._inboxes[self._instance].receive_many(_MOST_MESSAGES, timeout=0 if early else timeout)

    def take_requests(self) -> list[PrefillRequest]:
        """Return the requests that have come in meanwhile; all other messages wait for `receive`, in their order."""
        requests = []
        for data in self._inboxes[self._instance].receive_many(_MOST_MESSAGES, timeout=0):
            message = unpack(data)
            if isinstance(message, PrefillRequest):
                requests.append(message)
            else:
                self._early.append(data)
        return requests

    def to_engine(self, message: Message) -> None:
        """Send to the engine."""
        self._put(ENGINE_INBOX, message)

    def heard(self, number: int, shared: dict[str, dict[int, int]] | None = None) -> None:
        """Answer the engine's message of this number, maybe with references by pool and page."""
        self.to_engine(Heard(number, self._instance, shared or {}))

    def forget(self, uids: Collection[int]) -> None:
        """Forget the aborts of these attempts, and their decoders: they ended otherwise."""
        for key in [key for key in self._joining if key[0] in uids]:
            del self._joining[key]
        for uid in uids:
            self._heirs.pop(uid, None)

    def fail(self, uids: Iterable[int], message: str, kind: ErrorKind, param: str | None = None) -> None:
        """Tell the engine that these requests cannot go on."""
        for uid in uids:
            self.to_engine(Failed(uid, message, kind, param))

    def heir(self, uid: int) -> str | None:
        """Return the instance that decodes a request in place of its route's. None if nobody does."""
        return self._heirs.get(uid)

    def hand_over(self, uid: int, host: str) -> None:
        """Let aborts of a request, and of its answers, go to its present decoder."""
        self._heirs[uid] = host

    def pass_on(self, abort: Abort) -> None:
        """Send a request's abort to the next stage, behind all that went there for it.

        After the last stage the engine is told. An abort that comes from several hosts goes on when the last one has
        come. The abort of a single answer ends where this is.
        """
        heir = self._heirs.get(abort.uid)
        if heir and (abort.stage is Stage.DECODE or abort.index is not None):
            self.send(heir, abort)
            return
        if abort.index is not None or not self._joined(abort):
            return
        following = abort.stage.following
        if following is None:
            self.to_engine(Drained(abort.uid))
            return
        hosts = (heir,) if heir and following is Stage.DECODE else abort.route.hosts(following)
        if ENGINE in hosts:  # the stages that follow are with other nodes
            self.to_engine(Drained(abort.uid))
            return
        for host in hosts:
            self.send(host, Abort(abort.uid, abort.route, stage=following))

    def _joined(self, abort: Abort) -> bool:
        """Note that an abort has come; return whether it has from each instance that serves the stage before."""
        before = abort.stage.preceding
        senders = 1 if before is None else len(abort.route.hosts(before))
        key = abort.uid, abort.stage
        self._joining[key] += 1
        if self._joining[key] < senders:
            return False
        del self._joining[key]
        return True

    def _put(self, host: str, message: Message) -> None:
        """Send, and keep receiving while it must wait: two workers with full inboxes must not block each other."""
        data = pack(message)
        self._fence()
        while True:
            try:
                self._inboxes[host].send(data, timeout=_PATIENCE_SECONDS)
            except TimeoutError:
                self._early += self._inboxes[self._instance].receive_many(_MOST_MESSAGES, timeout=0)
            else:
                return
