"""Order the writes of several ranks, so that all do the same ones (UnifiedServe, §4.3).

Each rank keeps the same pages of a buffer, of each row a range of columns. A rank with whole rows hands them in;
rank 0 gives all ranks the same order, in which they do one write after another: a scatter, then each its own columns.
"""

import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

Rows = TypeVar("Rows")
Part = TypeVar("Part")
_HEAD = struct.Struct("<HQ")  # the rank that has the rows, and its number for them


class Queue(Protocol):
    """Carry requests and orders, first in, first out, as a `MessageQueue` does."""

    def send(self, message: bytes, /) -> None: ...
    def receive(self, timeout: float | None, /) -> bytes | None: ...


class CollectiveWriteQueue(Generic[Rows, Part]):
    """Give one rank its end of the queue.

    Any of its threads may put rows in; one does the writes, and on rank 0 a further one gives the order.
    """

    def __init__(
        self,
        rank: int,
        requests: Queue,
        orders: Sequence[Queue],
        scatter: Callable[[int, bytes, Rows | None], Part],
        write: Callable[[bytes, Part], None],
    ) -> None:
        """Take how parts get to their ranks, and where this rank writes its own.

        Args:
            rank: this one's number.
            requests: from all ranks to rank 0.
            orders: one for each rank, from rank 0.
            scatter: called on all ranks with the one that has the rows, where they go, and there the rows; returns
                this rank's part. In memory that all ranks share nothing moves: the rows are put where they go before
                they are handed in, and a part is a range of columns there (`columns`).
            write: puts a part where it goes.
        """
        self.rank = rank
        self._requests = requests
        self._orders = orders
        self._scatter = scatter
        self._write = write
        self._numbers = itertools.count()
        self._waiting: dict[int, Rows] = {}  # by number

    def put(self, where: bytes, rows: Rows) -> None:
        """Hand in rows, which must not change before they are written; writes of a thread keep their order.

        `where` is what all ranks understand, such as numbers of pages.
        """
        number = next(self._numbers)
        self._waiting[number] = rows
        self._requests.send(_HEAD.pack(self.rank, number) + where)

    def give_order(self, timeout: float | None = None) -> bool:
        """Have all ranks do the write that was asked for first: False if there is none in time.

        Rank 0 calls it.
        """
        request = self._requests.receive(timeout)
        if request is None:
            return False
        for order in self._orders:
            order.send(request)
        return True

    def write_next(self, timeout: float | None = None) -> bool:
        """Do the next write, which all ranks do; False if there is none in time. Raises what the scatter does."""
        order = self._orders[self.rank].receive(timeout)
        if order is None:
            return False
        root, number = _HEAD.unpack_from(order)
        where = order[_HEAD.size :]
        rows = self._waiting.pop(number) if root == self.rank else None
        self._write(where, self._scatter(root, where, rows))
        return True


def columns(width: int, rank: int, ranks: int) -> slice:
    """Return the columns of a rank. Raises ValueError if the ranks cannot have equally many."""
    if width % ranks:
        raise ValueError(f"{width} columns cannot be divided among {ranks} ranks")
    return slice(rank * width // ranks, (rank + 1) * width // ranks)
