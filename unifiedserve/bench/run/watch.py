"""Watch a run while it goes on, and stop it when it is pointless."""

import asyncio
from collections import deque
from statistics import median

from unifiedserve.bench.records import Record

_ALIKE = 8  # so many failures and no answer: all requests will fail
_GONE = 4  # so many requests in a row that cannot connect: there is no server any more
_RECENT = 32


class Watch:
    """Hold all records of a run in the order of sending, and the latest figures."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.answered = 0
        self.failed = 0
        self.stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # why the run has to end
        self._unreached = 0
        self._ttft: deque[float] = deque(maxlen=_RECENT)

    @property
    def ttft(self) -> float | None:
        """Return the median TTFT of the latest answers, in seconds."""
        return median(self._ttft) if self._ttft else None

    def sent(self, record: Record) -> None:
        """Remember a record, which is not complete yet."""
        self.records.append(record)

    def ended(self, record: Record) -> None:
        """Count an answer, or look for a reason to stop in its failure."""
        if record.error is None:
            self.answered += 1
            self._unreached = 0
            self._ttft.append(record.token_times[0] - record.due)
            return
        self.failed += 1
        self._unreached = self._unreached + 1 if record.status is None else 0
        if self._unreached == _GONE:
            self._end(f"the server is gone: {record.error}")
        elif self.failed == _ALIKE and not self.answered:
            self._end(f"none of the first {_ALIKE} requests was answered: {record.error}")

    def _end(self, why: str) -> None:
        if not self.stop.done():
            self.stop.set_result(why)
