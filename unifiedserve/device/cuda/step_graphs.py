"""Record steps of decode, one for each shape: which are recorded, when, and what is done without one."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from unifiedserve.device.base import SideStream

_log = logging.getLogger(__name__)
#: rows of the smaller graphs; beyond, there is one for each multiple of the last
SMALL_BUCKETS = (1, 2, 4, 8)
#: tokens of context of the first graphs; the next ones are for so many times as many
FIRST_CONTEXT, TIMES = 4096, 4
#: contexts whose graphs are recorded at the start
CONTEXTS_AT_START = 2
#: tokens before a longer context is reached, from which on its graph is wanted
AHEAD = 256


class Shape(NamedTuple):
    """Bound a recorded step's rows and their contexts. It serves fewer and shorter ones, too."""

    rows: int
    context: int


class StepGraphs:
    """Do a step of any shape: by its graph, or operation by operation until it has been recorded.

    Once something could not be recorded, nothing more is; `together` with other ranks it must be.
    """

    def __init__(
        self,
        step: Callable[[int, int], object],
        clear: Callable[[], object],
        stream: SideStream,
        rows: int,
        tokens: int,
        *,
        together: bool = False,
    ) -> None:
        """Serve up to so many rows of up to so many tokens.

        `step` issues a shape's work; after `clear` no row has a sequence, so that what is computed goes nowhere.
        """
        #: how many steps were done without a graph
        self.eager_steps = 0
        self._step, self._clear, self._stream, self._together = step, clear, stream, together
        self._most = Shape(rows, tokens)
        self._replays: dict[Shape, Callable[[], object]] = {}
        self._wanted: dict[Shape, None] = {}  # in order
        self._records = True

    @property
    def wants(self) -> bool:
        """Tell whether a graph is wanted that can be recorded."""
        return bool(self._wanted)

    def run(self, rows: int, tokens: int) -> None:
        """Do the step of the first `rows` rows. Their contexts are at most so many tokens."""
        rows, most = row_bucket(rows, self._most.rows), self._most.context
        shape, next_shape = (Shape(rows, context_bucket(reached, most)) for reached in (tokens, tokens + AHEAD))
        self._want(shape)
        self._want(next_shape)
        if replay := self._replays.get(shape):
            replay()
            return
        self.eager_steps += 1
        self._step(*shape)

    def record_first(self) -> None:
        """Record what most steps need; the largest first, because the others fit into its memory."""
        start = time.monotonic()
        contexts = (FIRST_CONTEXT * TIMES**number for number in range(CONTEXTS_AT_START))
        for context in sorted({context_bucket(own, self._most.context) for own in contexts}, reverse=True):
            for rows in sorted(row_buckets(self._most.rows), reverse=True):
                self._want(Shape(rows, context))
        while self._wanted:
            self.record_next()
        _log.info("recorded %d steps of decode in %.1f s", len(self._replays), time.monotonic() - start)

    def record_next(self) -> None:
        """Record one of the graphs that are wanted.

        Raises RuntimeError if it cannot be, and other ranks have theirs.
        """
        shape = next(iter(self._wanted))
        del self._wanted[shape]
        try:
            self._clear()
            self._replays[shape] = self._stream.record(lambda: self._step(*shape))
        except RuntimeError as error:
            if self._together:
                raise
            self._records = False
            self._wanted.clear()
            _log.warning("a step of decode could not be recorded; without a CUDA graph it is slower: %s", error)

    def _want(self, shape: Shape) -> None:
        if self._records and shape not in self._replays:
            self._wanted[shape] = None


def row_buckets(most: int) -> Iterator[int]:
    """Yield the numbers of rows for which there are graphs, up to `most`, ascending."""
    yield from (bucket for bucket in SMALL_BUCKETS if bucket < most)
    step = SMALL_BUCKETS[-1]
    yield from range(2 * step, most, step)
    yield most


def row_bucket(rows: int, most: int) -> int:
    """Return the smallest of them that has room for so many rows."""
    return next(bucket for bucket in row_buckets(most) if bucket >= rows)


def context_bucket(tokens: int, most: int) -> int:
    """Return the context length of the graph for so many tokens. It is `most` at most."""
    bucket = FIRST_CONTEXT
    while bucket < tokens:
        bucket *= TIMES
    return min(bucket, most)
