"""Track the transfers of pages from other memories that are under way."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from unifiedserve.carriers.base import Carrier, Copy
from unifiedserve.messages.wire import Span
from unifiedserve.placement import Stage
from unifiedserve.worker.reporter import Reporter

Ended = Callable[[str], None]  # with the error; empty if there is none


class _Read(NamedTuple):
    uid: int
    stage: Stage
    ended: Ended


class Reads:
    """Begin transfers, and say when they have ended."""

    def __init__(self, carrier: Carrier | None, reporter: Reporter) -> None:
        """Read nothing without a carrier: nobody has another memory."""
        self._carrier = carrier
        self._reporter = reporter
        self._under_way: dict[int, _Read] = {}

    def begin(self, uid: int, stage: Stage, address: str, copies: Sequence[Copy], ended: Ended) -> int:
        """Begin to read what a stage needs of a request. Raises TypeError without a carrier."""
        if self._carrier is None:
            raise TypeError("pages of another memory were offered to an instance that reads none")
        transfer = self._carrier.read(address, copies)
        self._under_way[transfer] = _Read(uid, stage, ended)
        return transfer

    def take_ended(self) -> None:
        """Tell the callers of `begin` which transfers have ended."""
        for transfer, error, size, seconds in self._carrier.poll() if self._carrier else ():
            if read := self._under_way.pop(transfer, None):
                now = time.monotonic()
                self._reporter.record(Span(read.stage, "pull", now - seconds, now, [read.uid], bytes=size))
                read.ended(error)

    def close(self, transfer: int) -> None:
        """Forget a transfer: nothing is written for it any more."""
        if self._under_way.pop(transfer, None) and self._carrier:
            self._carrier.close(transfer)

    def shut(self) -> None:
        """End all of them."""
        if self._carrier:
            self._carrier.shut()
