"""The turns that a request takes: sent, failed, resumed, ended."""

import asyncio
import time
from collections.abc import Sequence

from unifiedserve.engine.requests.dispatch import Dispatch
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.observe.metrics import Metrics

_MOST_CRASHES = 3  # of workers, while one request was in flight: then it is held to be the cause


class Lifecycle:
    """Brings every request to its end. Belongs to the engine's event loop."""

    def __init__(self, table: RequestTable, dispatch: Dispatch, metrics: Metrics) -> None:
        self._table = table
        self._dispatch = dispatch
        self._metrics = metrics

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
        if not active.complete:
            self._metrics.aborted()
        for uid in active.attempts:
            self._dispatch.abort(uid)
        if not active.attempts:
            self._table.release(active)

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

    def workers_lost(self) -> list[ActiveRequest]:
        """Return the requests that were with the workers, to be resumed when there are others."""
        lost = self._table.lose_attempts()
        for active in lost:
            active.crashes += 1
            for answer in active.answers:
                answer.forget_early()
        return lost

    def resume(self, active: ActiveRequest) -> None:
        """Go on with a request whose workers were lost."""
        if active.ending:
            self._table.release(active)
        elif active.crashes >= _MOST_CRASHES and not active.complete:
            reason = f"workers died {active.crashes} times while they worked on this request"
            self.fail(active, reason, ErrorKind.INTERNAL)
        else:
            self.resubmit(active, active.unfinished)
