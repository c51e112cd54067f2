"""The seam between those who want pages of another memory and what brings them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ipc_buffers import PagePool


class Copy(NamedTuple):
    """Pages of one pool of a source, and as many pages of the reader's own pool of that name."""

    pool: str
    source: Sequence[int]
    epochs: Sequence[int]  # in which the source's pages hold what is wanted
    into: Sequence[int]  # taken by the reader, and nobody else's to write


class Done(NamedTuple):
    """A transfer that has ended; `error` is one line, empty if all pages are there as they were in their epochs."""

    transfer: int
    error: str
    bytes: int
    seconds: float


class Carrier(Protocol):
    """Reads pages of other memories into those of its own, and lets others read them.

    It belongs to one thread. What it does, it does beside that, and rings the bell that it was made with when `poll`
    has something to tell.
    """

    #: where others read what was registered; goes along with what is offered to them
    address: str

    def register(self, pools: Mapping[str, PagePool]) -> None:
        """Let others read these pools, and read into them from now on; to be called once, before all else.

        Raises ConfigError for pools that it cannot carry.
        """

    def read(self, address: str, copies: Sequence[Copy]) -> int:
        """Begin to read, and return the transfer's number.

        What is wrong with the source is told by `poll`. Raises ValueError or ipc_buffers.PageError for what is wrong
        here: a pool that was not registered, counts that differ, pages of one's own that are free.
        """

    def poll(self) -> list[Done]:
        """Return the transfers that have ended since the last call."""

    def close(self, transfer: int) -> None:
        """Drop a transfer, under way or not: nothing is written to its pages, or told of it, after this."""

    def shut(self) -> None:
        """Drop all transfers, and let nobody read any more. Idempotent."""
