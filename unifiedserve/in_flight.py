"""Requests between their intake and their end: what goes to the workers for them, and what comes back."""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence

from unifiedserve.active import ActiveRequest
from unifiedserve.broadcast import Broadcast
from unifiedserve.caches import Caches
from unifiedserve.config import EngineConfig, Stage
from unifiedserve.errors import RequestError
from unifiedserve.link import Link
from unifiedserve.memory.shared import SharedMemory
from unifiedserve.messages import (
    Abort,
    Delta,
    Drained,
    Failed,
    Lookup,
    Message,
    PagesFreed,
    Preempted,
    PromptLogprobs,
    PromptVector,
    Report,
    Stale,
    Token,
)
from unifiedserve.metrics import Metrics
from unifiedserve.tracing import Timeline

_log = logging.getLogger(__name__)
_MOST_CRASHES = 3  # of workers, while one request was in flight: then it is held to be the cause


class InFlight:
    """Belongs to the engine's event loop; `on_release` is called whenever a request has ended."""

    def __init__(
        self,
        config: EngineConfig,
        metrics: Metrics,
        timeline: Timeline,
        broadcast: Broadcast,
        on_release: Callable[[], None],
    ) -> None:
        self.stages: dict[Stage, tuple[int, int]] = {}  # requests running and waiting in each
        self._config = config
        self._metrics = metrics
        self._timeline = timeline
        self._broadcast = broadcast
        self._on_release = on_release
        self._uids = itertools.count(1)
        self._active: set[ActiveRequest] = set()
        self._attempts: dict[int, ActiveRequest] = {}
        self._memory: SharedMemory
        self._caches: Caches
        self._link: Link

    def attach(self, memory: SharedMemory, caches: Caches, link: Link) -> None:
        """Workers over this memory are there from now on."""
        self._memory, self._caches, self._link = memory, caches, link

    def __len__(self) -> int:
        """Aborted requests that are still being drained included."""
        return len(self._active)

    def add(self, active: ActiveRequest) -> None:
        """A request was taken in; `submit` sends it on its way."""
        self._active.add(active)

    def submit(self, active: ActiveRequest, indices: Sequence[int]) -> None:
        """Send a new attempt at these answers through the stages.

        Answers that have tokens already each go on alone.
        """
        fresh = [index for index in indices if not active.answers[index].token_ids]
        begun = [[index] for index in indices if active.answers[index].token_ids]
        placement = self._config.workers
        for group in ([fresh] if fresh else []) + begun:
            uid = next(self._uids)
            request = active.language_request(uid, group, self._caches)
            for host in dict.fromkeys([placement.host(Stage.ENCODE), placement.host(Stage.PREFILL)]):
                self._link.send(host, request)
            active.attempts[uid] = set(group)
            self._attempts[uid] = active
            self._timeline.name(uid, active.admitted.request.id)
            watched = self._broadcast.watches(active)
            if vision := active.vision_request(uid, request.reuse, watched=watched):
                self._link.send(placement.host(Stage.VISION), vision)

    def _resubmit(self, active: ActiveRequest, indices: Sequence[int]) -> None:
        try:
            self.submit(active, indices)
        except RequestError as error:
            self.fail(active, error.message, error.status)

    def end(self, active: ActiveRequest) -> None:
        """The client has read everything, or has gone."""
        if active.ending:
            return
        active.ending = True
        if not active.complete:
            self._metrics.aborted()
        if not active.attempts:
            self.release(active)
        else:
            for uid in active.attempts:
                self._link.send(self._config.workers.instances[0].name, Abort(uid))

    def release(self, active: ActiveRequest) -> None:
        """Forget a request that is in no stage any more."""
        active.close()
        self._active.discard(active)
        self._on_release()
        for uid in active.attempts:
            self._attempts.pop(uid, None)

    def set_alarm(self, active: ActiveRequest, deadline: float | None) -> asyncio.TimerHandle | None:
        """Fail the request (504) if it is not complete so many seconds after its arrival."""
        if deadline is None:
            return None

        def strike() -> None:
            if not active.complete and not active.ending:
                self.fail(active, f"the answer was not complete by its deadline of {deadline:g} s", 504)

        return asyncio.get_running_loop().call_later(max(0.0, active.arrival + deadline - time.monotonic()), strike)

    def handle(self, message: Message) -> None:
        """What a worker says of a request, or of what it has done."""
        match message:
            case PromptLogprobs() | PromptVector():
                if message.uid in self._attempts:
                    self._attempts[message.uid].learn(message)
            case Report():
                self._handle_report(message)
            case Preempted():
                self._handle_preempted(message)
            case Stale():
                self._handle_stale(message)
            case Failed():
                self._handle_failed(message)
            case Drained():
                self._handle_drained(message)

    def fail_all(self, reason: str) -> None:
        """End every request with this error (503)."""
        for active in self._active:
            if not active.complete:
                active.outputs.put_nowait(RequestError(reason, status=503, type="server_error"))

    def release_all(self) -> None:
        for active in list(self._active):
            self.release(active)

    def workers_lost(self) -> list[ActiveRequest]:
        """The requests that were with the workers, to be resumed when there are others."""
        lost = [active for active in self._active if active.attempts]
        for active in lost:
            active.attempts.clear()
            active.early.clear()
            active.crashes += 1
        self._attempts.clear()
        return lost

    def resume(self, active: ActiveRequest) -> None:
        """Go on with a request whose workers were lost."""
        if active.ending:
            self.release(active)
        elif active.crashes >= _MOST_CRASHES and not active.complete:
            self.fail(active, f"workers died {active.crashes} times while they worked on this request", 500)
        else:
            self._resubmit(active, active.unfinished)

    def _handle_report(self, report: Report) -> None:
        self.stages.update(report.counts)
        self._caches.learn(report.kept)
        for lookup in report.lookups:
            self._handle_lookup(lookup)
        self._timeline.add(report.spans)
        for span in report.spans:
            seconds = span.end - span.start
            self._metrics.stage_time(span.stage.value, "queue" if span.name == "queue" else "run", seconds)
        now = time.monotonic()
        for uid in report.through:
            self._handle_through(uid, now)
        for token in report.tokens:
            active = self._attempts.get(token.uid)
            if active is not None and not active.ending:
                for next_token in active.in_order(token):
                    self._take_token(active, next_token, now)
        self._broadcast.reported(report, self._attempts)

    def _handle_lookup(self, lookup: Lookup) -> None:
        self._metrics.looked_up(lookup.buffer, lookup.tokens, lookup.hits)
        active = self._attempts.get(lookup.uid)
        if active is not None and lookup.buffer == "kv" and not active.last_token:
            active.cached_tokens = lookup.hits

    def _take_token(self, active: ActiveRequest, token: Token, now: float) -> None:
        try:
            self._handle_token(active, token, now)
        except Exception as error:
            _log.exception("could not handle a token")
            self.fail(active, f"internal error: {error}", 500)

    def _handle_token(self, active: ActiveRequest, token: Token, now: float) -> None:
        answer = active.answers[token.index]
        if answer.finished:
            return
        if token.error:
            self.fail(active, token.error, 400)
            return
        previous = active.last_token.get(token.index)
        if previous is None:
            self._metrics.first_token(now - active.arrival)
        else:
            self._metrics.token_gap(now - previous)
        active.last_token[token.index] = now
        delta = answer.push(token, active.cached_tokens)
        if answer.finished:
            if token.finish is None:  # a stop string: decode does not know
                self._link.send(self._config.workers.host(Stage.DECODE), Abort(token.uid, token.index))
            self._leave(active, token.uid, token.index)
        if delta is not None:
            self._put(active, delta, now)

    def _handle_through(self, uid: int, now: float) -> None:
        """A request that wants no tokens is at the end of its prompt."""
        active = self._attempts.get(uid)
        if active is None or active.ending:
            return
        for index in sorted(active.attempts[uid]):
            self._leave(active, uid, index)
            self._put(active, active.answers[index].end(index, active.pooled), now)

    def _put(self, active: ActiveRequest, delta: Delta, now: float) -> None:
        if delta.finish_reason:
            self._metrics.request_finished(
                delta.finish_reason, now - active.arrival, delta.prompt_tokens, delta.generated_tokens
            )
        active.outputs.put_nowait(delta)

    def _handle_preempted(self, message: Preempted) -> None:
        active = self._attempts.get(message.uid)
        if active is None or active.ending:
            return
        self._metrics.preempted()
        active.forget_early(message.index)
        self._leave(active, message.uid, message.index)
        if not active.answers[message.index].finished:
            self._resubmit(active, [message.index])

    def _handle_stale(self, message: Stale) -> None:
        """The attempt is drained, and what was in it goes through a new one in full."""
        active = self._attempts.get(message.uid)
        if active is None or active.ending or not active.attempts[message.uid]:
            return
        indices, active.attempts[message.uid] = active.attempts[message.uid], set()
        active.stale = True
        self._link.send(self._config.workers.instances[0].name, Abort(message.uid))
        self._resubmit(active, sorted(indices))

    def _handle_failed(self, message: Failed) -> None:
        active = self._attempts.get(message.uid)
        if active is not None and not active.ending:
            self.fail(active, message.message, message.status)

    def fail(self, active: ActiveRequest, reason: str, status: int) -> None:
        """End one request with an error."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        active.outputs.put_nowait(RequestError(reason, status=status, type=kind))
        self.end(active)

    def _handle_drained(self, message: Drained) -> None:
        active = self._attempts.pop(message.uid, None)
        if active is None:
            return
        if leaked := self._memory.reclaim(message.uid):
            _log.error("request %d left %d pages behind", message.uid, leaked)
            for instance in self._config.workers.instances:
                self._link.send(instance.name, PagesFreed())
        active.attempts.pop(message.uid, None)
        if not active.attempts:
            self.release(active)

    def _leave(self, active: ActiveRequest, uid: int, index: int) -> None:
        """An answer is no longer in an attempt."""
        remaining = active.attempts.get(uid, set())
        remaining.discard(index)
        if not remaining:
            active.attempts.pop(uid, None)
            self._attempts.pop(uid, None)
