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
    """Return the route of a further attempt: to the host with the least pending tokens (ModServe §4.3), else the first.

    Who serves it in one stage does so in all that it hosts: between these nothing has to travel.
    """
    if all(len(placement.hosts(stage)) == 1 for stage in Stage):
        return Route(**{stage.value: placement.hosts(stage)[0] for stage in Stage})
    pending = Counter[str]()
    for load in loads:
        for stage, tokens in load.left.items():
            pending[load.route.host(stage)] += tokens
    chosen: dict[Stage, str] = {}
    for stage in Stage:
        hosts = placement.hosts(stage)
        own = [name for name in hosts if name in chosen.values()]
        chosen[stage] = min(own or hosts, key=pending.__getitem__)
    return Route(**{stage.value: name for stage, name in chosen.items()})
