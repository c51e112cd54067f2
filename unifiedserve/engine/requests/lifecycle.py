"""Move a request on: sent, failed, resumed, ended."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from unifiedserve.engine.requests.dispatch import Dispatch
from unifiedserve.engine.requests.quarantine import Quarantine
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.suspects import Suspects
from unifiedserve.engine.requests.table import Attempt, Lost, RequestTable
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.memory.sequence_tables import Key, Row
from unifiedserve.messages.wire import Generation
from unifiedserve.observe.metrics import Metrics

_State = TypeVar("_State")


class Lifecycle:
    """Bring every request to its end. Belongs to the engine's event loop."""

    def __init__(self, table: RequestTable, dispatch: Dispatch, metrics: Metrics) -> None:
        self._table = table
        self._dispatch = dispatch
        self._metrics = metrics
        self._suspects = Suspects()
        self._quarantine = Quarantine()
        self._has_workers = True

    def submit(self, active: ActiveRequest) -> None:
        """Send a request on its way, now or when there are workers for it.

        Raises RequestError if it is too large for a message, or HARMFUL if it has killed workers before.
        """
        try:
            self._quarantine.check(active)
            active.stranded.update(active.unfinished)
            self._send(active)
        except RequestError:
            active.failed = True
            raise

    def resubmit(self, active: ActiveRequest, indices: Iterable[int]) -> None:
        """Send these answers through the stages again; the request fails if that cannot be."""
        active.stranded.update(indices)
        try:
            self._send(active)
        except RequestError as error:
            self.fail(active, error.message, error.kind)

    def end(self, active: ActiveRequest) -> None:
        """Let go of a request whose client has read everything, or has gone."""
        if active.ending:
            return
        active.ending = True
        active.stranded.clear()
        self._suspects.end(active)
        if not (active.complete or active.failed):
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

    def blame(self, worked_on: Iterable[int], *, media: bool) -> bool:
        """Count a death against the attempts that the dead worker worked on; `media`: it decoded or encoded.

        Return whether it is another one of a request that is the only suspect.
        """
        return self._suspects.blame(self._table.of_attempts(worked_on), media=media)

    def go_on(self, uids: Iterable[int], rows: Mapping[Key, Row]) -> set[int]:
        """Have the next worker decode what a dead one did. Returns the attempts that it takes.

        The page tables are the dead one's. Attempts that another worker died with before start again: they may be the
        cause.
        """
        return self._harmless(uids, rows, self._dispatch.go_on)

    def hand_on(self, uids: Iterable[int], unread: Mapping[Key, Generation]) -> set[int]:
        """Have the next worker decode unread handovers to a dead one. Returns the attempts that it takes.

        Attempts start again that do so in `go_on`.
        """
        return self._harmless(uids, unread, self._dispatch.hand_on)

    def lose(self, uids: Iterable[int]) -> list[Lost]:
        """End attempts of which something was lost with a worker; `strand` has their answers wait."""
        return self._table.lose(uids)

    def call_back(self, uids: Iterable[int]) -> None:
        """Tell attempts again to leave all stages: a worker that has died may have taken the first call with it."""
        for uid in uids:
            self._dispatch.abort(uid)

    def lose_all(self) -> None:
        """End all attempts: all workers are lost, and none comes until `workers_back`."""
        self._has_workers = False
        self.strand(self._table.lose([uid for uid, _ in self._table.attempts()]))

    def strand(self, lost: Iterable[Lost]) -> None:
        """Have answers of lost attempts wait, of which nothing is left with any worker."""
        for _, active, indices in lost:
            if not active.ending:
                active.stranded.update(index for index in indices if not active.answers[index].finished)

    def workers_back(self) -> None:
        """Go on with the answers that wait for workers, as far as these are there."""
        self._has_workers = True
        for active in self._table:
            if active.stranded:
                self._resume(active)
        self._let_go_on()

    def _harmless(
        self,
        uids: Iterable[int],
        states: Mapping[Key, _State],
        go_on: Callable[[int, Attempt, Mapping[Key, _State]], bool],
    ) -> set[int]:
        """Return the attempts that go on from their states. No other worker has died with their requests before."""
        attempts, known = dict(self._table.attempts()), {uid for uid, _ in states}
        return {
            uid
            for uid in known.intersection(uids)
            if attempts[uid].request.crashes <= 1 and go_on(uid, attempts[uid], states)
        }

    def _send(self, active: ActiveRequest) -> None:
        """Send what is stranded of a request, if there are workers for it.

        Units that another node may be reading are not encoded a second time: that node asks again.
        """
        if active.is_lent:
            self.fail(active, "a worker that had encoded it died", ErrorKind.UNAVAILABLE)
            return
        if active.stranded and self._has_workers and self._dispatch.can_serve(active):
            indices, active.stranded = sorted(active.stranded), set()
            self._dispatch.submit(active, indices)

    def _resume(self, active: ActiveRequest) -> None:
        if self._suspects.convicted(active):
            self._quarantine.add(active)
            reason = f"workers died {active.crashes} times while they worked on this request"
            self.fail(active, reason, ErrorKind.HARMFUL)
        elif self._suspects.may_go(active):
            self.resubmit(active, ())

    def _let_go_on(self) -> None:
        """Send a suspect on that was held back until the one before it had ended."""
        if self._has_workers and (held := self._suspects.next()):
            self.resubmit(held, ())
