"""Which instances serve a request: of the hosts of each stage the one with the least work left."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from unifiedserve.placement.instances import Placement, Stage


class Route(msgspec.Struct, frozen=True, array_like=True):
    """The names of the instances that serve an attempt at a request, a stage each; empty: none does yet."""

    vision: str = ""
    encode: str = ""
    prefill: str = ""
    decode: str = ""

    def host(self, stage: Stage) -> str:
        """Return the name of the instance that serves it in `stage`."""
        name: str = getattr(self, stage.value)
        return name


class Load(NamedTuple):
    """What is left of an attempt: tokens in each stage that it has not left, and where that is done."""

    route: Route
    left: Mapping[Stage, int]


def choose_route(placement: Placement, loads: Iterable[Load]) -> Route:
    """Return the route of a further attempt: least pending tokens in each stage (ModServe §4.3), else the first."""
    hosts = {stage: placement.hosts(stage) for stage in Stage}
    pending: Counter[tuple[Stage, str]] = Counter()
    if any(len(names) > 1 for names in hosts.values()):
        for load in loads:
            pending.update({(stage, load.route.host(stage)): tokens for stage, tokens in load.left.items()})
    return Route(**{stage.value: min(names, key=lambda name: pending[stage, name]) for stage, names in hosts.items()})
