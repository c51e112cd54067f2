"""Scale a pool with min and max by the load that its nodes report."""

from collections.abc import Mapping
from typing import NamedTuple

from unifiedserve.cluster.scaling import Limits, PoolLoad, Scaling, Wanted
from unifiedserve.messages.load import LoadReport

_BUSY = 0.8  # seconds of work a second that a node takes: with more, requests would wait long
_LITTLE = 1e-6  # seconds of work, which take a node
_PERIOD = 1.0  # seconds that a look goes back


class _Sums(NamedTuple):
    """Hold what an engine has counted since its start."""

    work: float
    first_tokens: int
    on_time: int


class PoolScaler:
    """Follow one pool. Work is counted in seconds, as the engines themselves have measured what a token costs.

    So a node's capacity in tokens a second (ModServe §4.2) is that for the mixture of requests that there is.
    """

    def __init__(self, limits: Limits) -> None:
        self._scaling = Scaling(limits, _BUSY)
        self._looked: float | None = None
        self._sums: dict[tuple[str, int], _Sums] = {}

    def after(self, now: float, loads: Mapping[str, LoadReport], nodes: int, *, awaited: bool = False) -> Wanted | None:
        """Return how many nodes there should be at `now`, in seconds; None if it was asked less than a second ago.

        `loads` are what the nodes have told last, by name; `nodes` is how many there should be by now. Where
        requests wait for the pool to wake (`awaited`), or streams run, one is needed at least.
        """
        if self._looked is not None and now - self._looked < _PERIOD:
            return None
        seconds = _PERIOD if self._looked is None else now - self._looked
        self._looked = now
        sums = {(name, told.started): _sums_of(told) for name, told in loads.items()}
        grown = [_grown(self._sums.get(key, after), after) for key, after in sums.items()]
        self._sums = sums
        busy = awaited or any(told.load.in_flight for told in loads.values())
        first_tokens = sum(each.first_tokens for each in grown)
        load = PoolLoad(
            at=now,
            tokens=sum(each.work for each in grown) / seconds,
            first_tokens=first_tokens,
            late=first_tokens - sum(each.on_time for each in grown),
            pending=max(sum(told.load.backlog for told in loads.values()), _LITTLE if busy else 0.0),
            coming=max(0, nodes - len(loads)),
        )
        return self._scaling.after(load, nodes)


def _sums_of(told: LoadReport) -> _Sums:
    return _Sums(told.load.work, told.load.first_tokens, told.load.on_time)


def _grown(before: _Sums, after: _Sums) -> _Sums:
    return _Sums(after.work - before.work, after.first_tokens - before.first_tokens, after.on_time - before.on_time)
