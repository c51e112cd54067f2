"""Define the seam between readers of another memory's pages and their carriers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ipc_buffers import PagePool


class Copy(NamedTuple):
    """Pair pages of one pool of a source with as many pages of the reader's. Its own pool has that name, too."""

    pool: str
    source: Sequence[int]
    epochs: Sequence[int]  # in which the source's pages hold what is wanted
    into: Sequence[int]  # taken by the reader, and nobody else's to write


class Done(NamedTuple):
    """Report a transfer that has ended.

    `error` is one line, empty if all pages are there as they were in their epochs.
    """

    transfer: int
    error: str
    bytes: int
    seconds: float


class Carrier(Protocol):
    """Read pages of other memories into those of its own, and let others read them.

    It belongs to one thread and works beside that. It rings the bell that it was made with when `poll` has something to
    tell.
    """

    #: where others read what was registered; goes along with what is offered to them
    address: str

    def register(self, pools: Mapping[str, PagePool]) -> None:
        """Let others read these pools, and read into them from now on; to be called once, before all else.

        Raises ConfigError for pools that it cannot carry.
        """

    def read(self, address: str, copies: Sequence[Copy]) -> int:
        """Begin to read, and return the transfer's number.

        `poll` reports what is wrong with the source. Raises ValueError or ipc_buffers.PageError for what is wrong here:
        a pool that was not registered, counts that differ, pages of one's own that are free.
        """

    def poll(self) -> list[Done]:
        """Return the transfers that have ended since the last call."""

    def close(self, transfer: int) -> None:
        """Drop a transfer, under way or not: nothing is written to its pages, or told of it, after this."""

    def shut(self) -> None:
        """Drop all transfers, and let nobody read any more. Idempotent."""
