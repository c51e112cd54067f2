"""What a stage may do to the outside: send to another stage or to the engine, and put work on the record."""

import time
from collections.abc import Iterable

from ipc_buffers import MessageQueue
from unifiedserve.config import Placement, Stage
from unifiedserve.memory.shared import ENGINE_INBOX, SharedMemory
from unifiedserve.messages import Abort, Decoded, Drained, Failed, Kept, Lookup, Message, Report, Span, Token, pack

_PATIENCE_SECONDS = 0.05
_MOST_MESSAGES = 256
_HEAVY = (Stage.VISION, Stage.ENCODE, Stage.PREFILL)


class Port:
    """The connections of one worker. Tokens and spans are gathered into one report a step."""

    def __init__(self, placement: Placement, instance: str, memory: SharedMemory) -> None:
        self._placement = placement
        self._instance = instance
        self._inboxes = memory.inboxes
        self._status = memory.status
        self._heavy_elsewhere = [stage for stage in _HEAVY if placement.host(stage) != instance]
        self._local: list[Message] = []
        self._early: list[bytes] = []
        self._report = Report(instance=instance)
        self._queued: dict[tuple[Stage, int], float] = {}

    def send(self, stage: Stage, message: Message) -> None:
        """To the instance that hosts `stage`; to this very one without a detour."""
        host = self._placement.host(stage)
        if host == self._instance:
            self._local.append(message)
        else:
            self._put(host, message)

    def take_local(self) -> list[Message]:
        """Messages that this worker's stages have sent to each other."""
        messages, self._local = self._local, []
        return messages

    def take_early(self) -> list[bytes]:
        """Messages that had to be received while another worker's inbox was full."""
        messages, self._early = self._early, []
        return messages

    def working(self, stage: Stage, working: bool) -> None:
        """Tell the other workers whether `stage` has work for the cores."""
        self._status.set_working(stage, working)

    @property
    def others_work(self) -> bool:
        """Whether a heavy stage of another worker has work for the cores."""
        return any(map(self._status.working, self._heavy_elsewhere))

    def waiting(self, requests: int, joining: bool) -> None:
        """Tell the other workers how many requests wait here for their first token, and if some get it in this step."""
        self._status.set_waiting(Stage.PREFILL, requests, joining)

    @property
    def others_wait(self) -> int:
        """Requests of another worker that wait for their first token."""
        return self._status.waiting(Stage.PREFILL) if Stage.PREFILL in self._heavy_elsewhere else 0

    @property
    def others_join(self) -> bool:
        """Whether another worker's present step gives first tokens to requests that it began with this step."""
        return Stage.PREFILL in self._heavy_elsewhere and self._status.joining(Stage.PREFILL)

    def used(self, stage: Stage, pages: int) -> None:
        """So many pages of the buffer from which `stage` takes them are in use: for its peak."""
        self._status.used(stage, pages)

    @property
    def inbox(self) -> MessageQueue:
        """This worker's own."""
        return self._inboxes[self._instance]

    def _put(self, host: str, message: Message) -> None:
        """Send, and keep receiving while it must wait: two workers with full inboxes must not block each other."""
        data = pack(message)
        while True:
            try:
                self._inboxes[host].send(data, timeout=_PATIENCE_SECONDS)
            except TimeoutError:
                self._early += self.inbox.receive_many(_MOST_MESSAGES, timeout=0)
            else:
                return

    def to_engine(self, message: Message) -> None:
        self._put(ENGINE_INBOX, message)

    def fail(self, uids: Iterable[int], message: str, status: int) -> None:
        for uid in uids:
            self.to_engine(Failed(uid, message, status))

    def forward_abort(self, message: Abort) -> None:
        """To the next instance; the last one tells the engine."""
        names = [instance.name for instance in self._placement.instances]
        later = names[names.index(self._instance) + 1 :]
        if later:
            self._put(later[0], message)
        else:
            self.to_engine(Drained(message.uid))

    def tokens(self, tokens: list[Token], through: Iterable[int] = ()) -> None:
        """What was sampled, and which requests that want no tokens are at the ends of their prompts."""
        self._report.tokens.extend(tokens)
        self._report.through.extend(through)

    def cached(self, kept: list[Kept], lookups: list[Lookup]) -> None:
        """What can be found in the caches from now on, and what was found in them."""
        self._report.kept.extend(kept)
        self._report.lookups.extend(lookups)

    def decoded(self, decoded: Decoded) -> None:
        """What was decoded of a request that somebody watches."""
        self._report.decoded.append(decoded)

    def span(self, stage: Stage, name: str, start: float, requests: list[int]) -> None:
        """Record work that began at `start` (monotonic seconds) and has ended now."""
        self.record(Span(stage, name, start, time.monotonic(), requests))

    def record(self, span: Span) -> None:
        self._report.spans.append(span)

    def queued(self, stage: Stage, uid: int) -> None:
        """Something of the request could be worked on by `stage` from now on."""
        self._queued.setdefault((stage, uid), time.monotonic())

    def dequeued(self, stage: Stage, uid: int) -> None:
        """The stage begins to work on what has been queued of the request."""
        since = self._queued.pop((stage, uid), None)
        if since is not None:
            self.span(stage, "queue", since, [uid])

    def forget(self, uid: int) -> None:
        """The request has left."""
        for stage in Stage:
            self._queued.pop((stage, uid), None)

    def flush(self, counts: dict[Stage, tuple[int, int]]) -> None:
        """Send what was gathered, if anything happened since the last time."""
        report = self._report
        gathered = report.tokens or report.through or report.spans or report.kept or report.lookups
        if gathered or counts != report.counts:
            report.counts = counts
            self.to_engine(report)
            self._report = Report(instance=self._instance, counts=counts)
