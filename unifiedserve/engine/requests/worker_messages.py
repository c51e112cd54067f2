"""Handle what the workers say of single requests."""

import logging
import time
from typing import Protocol

from unifiedserve.engine.requests.dispatch import Dispatch
from unifiedserve.engine.requests.lifecycle import Lifecycle
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.reports import Reports
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.engine.workers import Workers
from unifiedserve.errors import ErrorKind
from unifiedserve.messages.pages import PageOffer
from unifiedserve.messages.wire import (
    Drained,
    Embeddings,
    Failed,
    HandedOver,
    Message,
    PagesFreed,
    Preempted,
    PromptLogprobs,
    PromptVector,
    Released,
    Report,
    Stale,
    Wanted,
)
from unifiedserve.observe.metrics import Metrics
from unifiedserve.placement import Placement

_log = logging.getLogger(__name__)


class Encoders(Protocol):
    """Reach other nodes that encode for this one: see `engine/encoding/`."""

    def begin(self, wanted: Wanted) -> None: ...
    def read(self, released: Released) -> None: ...


class WorkerMessages:
    """Handle each message about requests. Belongs to the engine's event loop."""

    def __init__(
        self,
        placement: Placement,
        table: RequestTable,
        lifecycle: Lifecycle,
        dispatch: Dispatch,
        reports: Reports,
        workers: Workers,
        encoders: Encoders | None,
        metrics: Metrics,
    ) -> None:
        self._placement = placement
        self._table = table
        self._lifecycle = lifecycle
        self._dispatch = dispatch
        self._reports = reports
        self._workers = workers
        self._encoders = encoders
        self._metrics = metrics

    def handle(self, message: Message) -> None:
        """Do what a message asks for."""
        match message:
            case Report():
                self._reports.take(message)
            case PromptLogprobs() | PromptVector():
                if active := self._table.find(message.uid):
                    active.learn(message)
            case Preempted():
                self._preempted(message)
            case HandedOver(uid, index, host):
                self._table.hand_over(uid, index, host)
            case Stale():
                self._stale(message)
            case Embeddings(offer=PageOffer()):
                self._encoded(message)
            case Wanted() if self._encoders:
                self._encoders.begin(message)
            case Released() if self._encoders:
                self._encoders.read(message)
            case Failed():
                self._failed(message)
            case Drained():
                self._drained(message)

    def _preempted(self, message: Preempted) -> None:
        active = self._table.serving(message.uid)
        if active is None:
            return
        self._metrics.preempted()
        answer = active.answers[message.index]
        answer.forget_early()
        self._table.leave(message.uid, message.index)
        if not answer.finished and self._may_try_again(active, message.reason):
            self._lifecycle.resubmit(active, [message.index])

    def _stale(self, message: Stale) -> None:
        """Drain the attempt, and send what was in it through a new one in full."""
        active = self._table.serving(message.uid)
        if active is None or not active.attempts[message.uid]:
            return
        if message.reason and (remote := self._table.remote(message.uid)):
            remote.lost(message.reason)
        elif not self._may_try_again(active, message.reason):
            return
        indices = self._table.empty(message.uid)
        active.stale = True
        self._dispatch.abort(message.uid)
        self._lifecycle.resubmit(active, indices)

    def _may_try_again(self, active: ActiveRequest, reason: str) -> bool:
        """Tell whether a request may start again; end it if its pages could not be read too often, for a `reason`."""
        if not reason:
            return True
        _log.warning("%s: its pages could not be read from another memory: %s", active.id, reason)
        if not active.failed_reads.note(time.monotonic()):
            return True
        what = f"its pages could not be read from another memory, again and again: {reason}"
        self._lifecycle.fail(active, what, ErrorKind.INTERNAL)
        return False

    def _encoded(self, message: Embeddings) -> None:
        """Tell the node that waits for a unit where it can read it."""
        active = self._table.serving(message.uid)
        if active is None or message.offer is None:
            return
        now, complete = time.monotonic(), active.complete
        self._table.encoded(message.uid, active.lend(message.unit, message.offer, now))
        if active.complete and not complete:
            self._table.tally.first_token(now, active.due)

    def _failed(self, message: Failed) -> None:
        if active := self._table.serving(message.uid):
            self._lifecycle.fail(active, message.message, message.kind, message.param)

    def _drained(self, message: Drained) -> None:
        active = self._table.end_attempt(message.uid)
        if active is None:
            return
        if leaked := self._workers.memory.reclaim(message.uid):
            level = logging.DEBUG if active.planned.window else logging.ERROR  # of a window some may be on their way
            _log.log(level, "request %d left %d pages behind", message.uid, leaked)
            for instance in self._placement.instances:
                self._workers.send(instance.name, PagesFreed())
        if not active.attempts:
            self._table.release(active)
