"""Refer to pages of the shared buffers."""

from collections.abc import Collection
from typing import NamedTuple


class Pages(NamedTuple):
    """Name pages of one pool and the epochs in which they hold something."""

    numbers: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()

    def first(self, count: int) -> "Pages":
        """Return the leading pages."""
        return Pages(self.numbers[:count], self.epochs[:count])

    def without(self, numbers: Collection[int]) -> "Pages":
        """Return the pages but those of these numbers."""
        left = [(number, epoch) for number, epoch in zip(*self, strict=True) if number not in numbers]
        return Pages(tuple(number for number, _ in left), tuple(epoch for _, epoch in left))


class Window(NamedTuple):
    """Name the pages that a request goes through. The buffers do not hold all of its media.

    Its units get `patch` and `visual` pages in the order of the prompt, and those that come after them the same ones
    again. At least `units` of them have pages at a time.
    """

    patch: int
    visual: int
    units: int

    @property
    def half(self) -> int:
        """Return how many units are worth a step: the others go on meanwhile."""
        return max(1, self.units // 2)


class PageSlice(NamedTuple):
    """Name rows [first, last) of a page."""

    page: int
    first: int
    last: int


class PageOffer(NamedTuple):
    """Offer pages in another memory than the receiver's.

    Their `instance` holds them until it is told that they were read. They can be read at the `address` of its carrier.
    """

    instance: str
    address: str
    kv: Pages = Pages()
    visual: Pages = Pages()
