"""Plan what a run is to send."""

from collections.abc import Sequence
from math import inf

import msgspec

from unifiedserve.bench.client.body import Wishes, media_paths
from unifiedserve.bench.client.target import Target
from unifiedserve.bench.requests import Arrival, Request


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Hold requests with their due times, or for so many `users` in turn. 0: by the times.

    `warmup` goes before, one request at a time, and is not counted. Nothing begins after `seconds`. The texts say for
    the record what was asked for.
    """

    name: str
    workload: str
    arrivals: str
    seed: int
    requests: Sequence[Arrival]
    users: int = 0
    warmup: Sequence[Request] = ()
    seconds: float = inf

    @property
    def due(self) -> list[Arrival]:
        """Return the requests that are due in time; those for users all are."""
        return [arrival for arrival in self.requests if self.users or arrival.at <= self.seconds]

    @property
    def turns(self) -> int:
        """Return how many turns these have together."""
        return sum(len(arrival.request.turns) for arrival in self.due)

    @property
    def paths(self) -> list[str]:
        """Return the files that are sent."""
        return media_paths([*self.warmup, *(arrival.request for arrival in self.requests)])


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """Say how requests are sent: to which server, with which options, with their media delivered how."""

    url: str
    target: Target
    wishes: Wishes = Wishes()
    delivery: str = "auto"
