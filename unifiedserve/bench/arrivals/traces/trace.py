"""Replay a trace as a process of arrivals: a part of it, at another pace."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from unifiedserve.bench.arrivals.processes import Times
from unifiedserve.bench.arrivals.seeds import stream
from unifiedserve.bench.arrivals.traces import layouts
from unifiedserve.bench.arrivals.traces.row import Row
from unifiedserve.errors import ConfigError


class Trace(msgspec.Struct, frozen=True):
    """Hold the rows of a file from `start` to before `end`. At most the `first` of them are there, and begin at 0.

    `start` and `end` are the trace's own seconds after its first row. `scale` multiplies the times that come out: with
    2 it takes twice as long, at half the rate. Rows with the same time are spread over the `spread` seconds after it,
    in their order, though not beyond the next row's time: Mooncake's times are in steps of 3 seconds.
    """

    path: Path
    scale: float = 1.0
    start: float = 0.0
    end: float | None = None
    first: int | None = None
    spread: float = 0.0

    def rows(self, seed: int) -> list[Row]:
        """Return the rows with the times they are due, in seconds.

        Raises ConfigError if the file is no trace, its times fall, or none are left.
        """
        rows = list(itertools.islice(self._cut(self._spread(self._read(seed), seed)), self.first))
        if not rows:
            raise ConfigError(f"{self.path}: it has no requests from {self.start:g} s to {self.end or 'the end'}")
        return rows

    def times(self, count: int, seed: int) -> Times:
        """Return when the first `count` rows are due, in seconds; raises ConfigError if there are fewer."""
        rows = self.rows(seed)
        if len(rows) < count:
            raise ConfigError(f"{self.path}: {len(rows)} rows for {count} requests: ask for fewer or cut less")
        return np.array([row.at for row in rows[:count]])

    def _read(self, seed: int) -> Iterator[Row]:
        """Yield all rows, the first at 0."""
        begin = last = None
        for row in layouts.read(self.path, seed):
            begin, last = (row.at, row.at) if begin is None or last is None else (begin, last)
            if row.at < last:
                back = f"its time is {last - row.at:g} s before the one above"
                raise ConfigError(f"{self.path}, line {row.line}: {back}: sort the file by time")
            last = row.at
            yield msgspec.structs.replace(row, at=round(row.at - begin, 6))  # files have microseconds

    def _spread(self, rows: Iterable[Row], seed: int) -> Iterator[Row]:
        if not self.spread:
            yield from rows
            return
        rng = stream(seed, "spread")
        groups = (list(group) for _, group in itertools.groupby(rows, lambda row: row.at))
        for group, following in itertools.pairwise(itertools.chain(groups, [None])):
            assert group is not None
            room = min(self.spread, following[0].at - group[0].at) if following else self.spread
            later = np.sort(rng.uniform(0, room, len(group))).tolist()
            yield from (msgspec.structs.replace(row, at=row.at + d) for row, d in zip(group, later, strict=True))

    def _cut(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            if self.end is not None and row.at >= self.end:
                return
            if row.at >= self.start:
                yield msgspec.structs.replace(row, at=(row.at - self.start) * self.scale)
