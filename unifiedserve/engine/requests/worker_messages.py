"""What the workers say of single requests."""

import logging

from unifiedserve.engine.requests.dispatch import Dispatch
from unifiedserve.engine.requests.lifecycle import Lifecycle
from unifiedserve.engine.requests.reports import Reports
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.engine.workers import Workers
from unifiedserve.messages.wire import (
    Drained,
    Failed,
    HandedOver,
    Message,
    PagesFreed,
    Preempted,
    PromptLogprobs,
    PromptVector,
    Report,
    Stale,
)
from unifiedserve.observe.metrics import Metrics
from unifiedserve.placement import Placement

_log = logging.getLogger(__name__)


class WorkerMessages:
    """Handles each message about requests. Belongs to the engine's event loop."""

    def __init__(
        self,
        placement: Placement,
        table: RequestTable,
        lifecycle: Lifecycle,
        dispatch: Dispatch,
        reports: Reports,
        workers: Workers,
        metrics: Metrics,
    ) -> None:
        self._placement = placement
        self._table = table
        self._lifecycle = lifecycle
        self._dispatch = dispatch
        self._reports = reports
        self._workers = workers
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
        if not answer.finished:
            self._lifecycle.resubmit(active, [message.index])

    def _stale(self, message: Stale) -> None:
        """Drain the attempt, and send what was in it through a new one in full."""
        active = self._table.serving(message.uid)
        if active is None or not active.attempts[message.uid]:
            return
        indices = self._table.empty(message.uid)
        active.stale = True
        self._dispatch.abort(message.uid)
        self._lifecycle.resubmit(active, indices)

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
