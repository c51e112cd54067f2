"""Compute the nodes that a pool needs: as many as its load takes, in tokens a second (ModServe §4.2). Pure."""

import math
from collections import deque
from typing import NamedTuple

_ATTAINMENT = 0.99  # of the requests should hold their targets
_PATIENCE = 60.0  # seconds for which fewer nodes must do before one leaves
_SPARE = 0.1  # of a node's capacity that must be left over before a node leaves
_LOOK_BACK = 10.0  # seconds over which load is averaged before nodes are added
_LEAST = 0.4  # of a node's capacity: with less to do, more nodes would not make first tokens come sooner


class PoolLoad(NamedTuple):
    """Measure what came to a pool lately: tokens a second, first tokens, and the late ones among them."""

    at: float  # seconds
    tokens: float
    first_tokens: int = 0
    late: int = 0
    pending: float = 0.0  # tokens that wait
    coming: int = 0  # nodes that were asked for, and do not serve yet


class Limits(NamedTuple):
    """Limit the nodes that a pool may have. With `least` 0 it sleeps while nothing comes."""

    least: int
    most: int


class Wanted(NamedTuple):
    """Tell how many nodes a pool should have, and how many without a limit."""

    nodes: int
    needed: int


class Scaling:
    """Follow a pool's load. More nodes come at once, fewer after a while in which fewer would have done."""

    def __init__(self, limits: Limits, capacity: float) -> None:
        """Expect `capacity` tokens a second of a node.

        Raises ValueError if that is nothing, or the limits contradict.
        """
        if capacity <= 0:
            raise ValueError(f"a node must do more than {capacity:g} tokens a second")
        if not 0 <= limits.least <= limits.most:
            raise ValueError(f"between {limits.least} and {limits.most} nodes is nothing")
        self._limits = limits
        self._capacity = capacity
        self._lately: deque[PoolLoad] = deque()
        self._fewer_since: float | None = None
        self._settled_at = -math.inf  # seconds: what nodes that have come changed can be seen

    def after(self, load: PoolLoad, nodes: int) -> Wanted:
        """Return how many nodes the pool should have, which has so many now."""
        self._lately.append(load)
        while self._lately[0].at < load.at - _LOOK_BACK:
            self._lately.popleft()
        needed = max(self._needed(load), self._needed_in_time(load, nodes))
        return Wanted(self._settled(load.at, needed, nodes), needed)

    def _needed_in_time(self, load: PoolLoad, nodes: int) -> int:
        """Return how many nodes late first tokens want: one more, if all of them have served for a while."""
        if load.coming:
            self._settled_at = load.at + _LOOK_BACK
        if not self._are_late:
            return 0
        most = math.ceil(self._mean_tokens / (_LEAST * self._capacity)) + 1
        if load.at < self._settled_at:
            return min(nodes, most)
        self._settled_at = load.at + _LOOK_BACK
        return min(nodes + 1, most)

    @property
    def _are_late(self) -> bool:
        first_tokens = sum(each.first_tokens for each in self._lately)
        return sum(each.late for each in self._lately) > (1.0 - _ATTAINMENT) * first_tokens

    @property
    def _mean_tokens(self) -> float:
        return sum(each.tokens for each in self._lately) / len(self._lately)

    def _needed(self, load: PoolLoad) -> int:
        """Return ⌈load / capacity⌉: what comes, and what waits, which is to be done within the time looked back at."""
        return math.ceil((self._mean_tokens + load.pending / _LOOK_BACK) / self._capacity)

    def _settled(self, at: float, needed: int, nodes: int) -> int:
        wanted = min(max(needed, self._limits.least), self._limits.most)
        if wanted >= nodes:
            self._fewer_since = None
            return wanted
        if self._mean_tokens > (nodes - 1 - _SPARE) * self._capacity and nodes > 1:
            self._fewer_since = None
            return nodes
        if self._fewer_since is None:
            self._fewer_since = at
        if at - self._fewer_since < _PATIENCE:
            return nodes
        self._fewer_since = at
        return max(wanted, nodes - 1)
