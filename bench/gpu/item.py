"""Describe an item, and how long it may take."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """A process that finds something out.

    `target` is "module:function", called with `Figures` to fill and then `arguments`. `limit` is in seconds, as is
    `reserved`, the time that no item before it can take. `needs` are names of conditions (needs.py), looked at just
    before it starts. An item that `serves` starts daemons.
    """

    name: str
    target: str
    meaning: str
    limit: float = 60.0
    needs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    serves: bool = False
    reserved: float = 0.0


def allowance(most: float, left: float, later: Sequence[Item]) -> float:
    """Return the seconds that may be spent now: at most `most`, and of those left only what is not reserved."""
    return min(most, left - sum(item.reserved for item in later))
