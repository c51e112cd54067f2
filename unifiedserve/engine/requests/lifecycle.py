"""The turns that a request takes: sent, failed, resumed, ended."""

import asyncio
import time
from collections.abc import Iterable, Sequence

from unifiedserve.engine.requests.dispatch import Dispatch
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.suspects import Suspects
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.observe.metrics import Metrics


class Lifecycle:
    """Brings every request to its end. Belongs to the engine's event loop."""

    def __init__(self, table: RequestTable, dispatch: Dispatch, metrics: Metrics) -> None:
        self._table = table
        self._dispatch = dispatch
        self._metrics = metrics
        self._suspects = Suspects()
        self._has_workers = True

    def submit(self, active: ActiveRequest) -> None:
        """Send a request on its way. Raises RequestError if it is too large for a message."""
        self._dispatch.submit(active, active.unfinished)

    def resubmit(self, active: ActiveRequest, indices: Sequence[int]) -> None:
        """Send these answers through the stages again; the request fails if that cannot be."""
        try:
            self._dispatch.submit(active, indices)
        except RequestError as error:
            self.fail(active, error.message, error.kind)

    def end(self, active: ActiveRequest) -> None:
        """Let go of a request whose client has read everything, or has gone."""
        if active.ending:
            return
        active.ending = True
        self._suspects.end(active)
        if not active.complete:
            self._metrics.aborted()
        for uid in active.attempts:
            self._dispatch.abort(uid)
        if not active.attempts:
            self._table.release(active)
        self._let_go_on()

    def fail(self, active: ActiveRequest, message: str, kind: ErrorKind, param: str | None = None) -> None:
        """End one request with an error."""
        active.tell_error(message, kind, param)
        self.end(active)

    def set_alarm(self, active: ActiveRequest, deadline: float | None) -> asyncio.TimerHandle | None:
        """Fail the request (LATE) if it is not complete `deadline` seconds after its arrival."""
        if deadline is None:
            return None

        def strike() -> None:
            if not active.complete and not active.ending:
                self.fail(active, f"the answer was not complete by its deadline of {deadline:g} s", ErrorKind.LATE)

        return asyncio.get_running_loop().call_later(max(0.0, active.arrival + deadline - time.monotonic()), strike)

    def fail_all(self, reason: str) -> None:
        """Tell every client that its request cannot go on (UNAVAILABLE)."""
        for active in self._table:
            if not active.complete:
                active.tell_error(reason, ErrorKind.UNAVAILABLE)

    def release_all(self) -> None:
        """Forget all requests: there are no workers any more."""
        for active in self._table:
            self._table.release(active)

    def workers_lost(self, worked_on: Iterable[int]) -> list[ActiveRequest]:
        """Return the requests that were with the workers, to be resumed when there are others.

        The dead one worked on these attempts.
        """
        self._has_workers = False
        self._suspects.blame(self._table.of_attempts(worked_on))
        lost = self._table.lose_attempts()
        for active in lost:
            for answer in active.answers:
                answer.forget_early()
        return lost

    def workers_back(self, lost: Iterable[ActiveRequest]) -> None:
        """Go on with these requests, whose workers were lost: there are others."""
        self._has_workers = True
        for active in lost:
            self._resume(active)
        self._let_go_on()

    def release_ending(self, lost: Iterable[ActiveRequest]) -> None:
        """Forget those of these requests that were only to be drained: there will be no workers."""
        for active in lost:
            if active.ending:
                self._table.release(active)

    def _resume(self, active: ActiveRequest) -> None:
        if active.ending:
            self._table.release(active)
        elif self._suspects.convicted(active) and not active.complete:
            reason = f"workers died {active.crashes} times while they worked on this request"
            self.fail(active, reason, ErrorKind.INTERNAL)
        elif self._suspects.may_go(active):
            self.resubmit(active, active.unfinished)

    def _let_go_on(self) -> None:
        """Send a suspect on that was held back until the one before it had ended."""
        if self._has_workers and (held := self._suspects.next()):
            self.resubmit(held, held.unfinished)
