"""Choose the instances that serve a request: near each other, with the least work left."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from unifiedserve.placement.instances import ENGINE, Placement, Stage


class Route(msgspec.Struct, frozen=True, array_like=True):
    """Name the instances that serve an attempt at a request. Empty: none does yet.

    Several may encode it: vision gives each unit to one of them when it is decoded. Without media, or where all of them
    are cached, it goes to prefill at once.
    """

    vision: str = ""
    encode: tuple[str, ...] = ()
    prefill: str = ""
    decode: str = ""

    def hosts(self, stage: Stage) -> tuple[str, ...]:
        """Return the names of the instances that serve it in `stage`."""
        found: str | tuple[str, ...] = getattr(self, stage.value)
        return found if isinstance(found, tuple) else (found,) if found else ()

    @property
    def first(self) -> Stage:
        """Return the stage in which it begins."""
        return next((stage for stage in Stage if self.hosts(stage)), Stage.PREFILL)

    def at_prefill(self) -> "Route":
        """Return the route of an attempt that begins there."""
        return Route(prefill=self.prefill, decode=self.decode)

    def decoded_by(self, host: str) -> "Route":
        """Return the route where another instance decodes."""
        return msgspec.structs.replace(self, decode=host)

    def without(self, name: str) -> "Route":
        """Return the route of answers in decode without an instance of other stages that left."""
        encode = tuple(host for host in self.encode if host != name)
        vision, prefill = ("" if self.vision == name else self.vision), self.prefill
        return Route(vision, encode, self.decode if prefill == name else prefill, self.decode)


class Load(NamedTuple):
    """Count what is left of an attempt: tokens in each stage that it has not left, and where they are computed."""

    route: Route
    left: Mapping[Stage, int]


def choose_route(placement: Placement, loads: Iterable[Load], *, media: bool = True) -> Route:
    """Return the route of a further attempt: to the host with the least pending tokens (ModServe §4.3), else the first.

    A host that serves it in one stage does so in all that it hosts: between these nothing has to travel. Prefill is in
    the memory of the encoders, and decode in that of prefill, where that has a host. Where units of one request are
    encoded in parallel all encoders of one memory serve it (EPD §3.3.2, IRP). Without `media` it begins in prefill. A
    node that encodes for others gives each request to one encoder; the engine stands in for the nodes that prefill.
    """
    hosts = {stage: placement.hosts(stage) for stage in placement.stages}
    pending = Counter[str]()
    if any(len(names) > 1 for names in hosts.values()):
        for load in loads:
            for stage, tokens in load.left.items():
                for name in load.route.hosts(stage):
                    pending[name] += tokens // len(load.route.hosts(stage))
    memories = {instance.name: instance.memory for instance in placement.instances}
    chosen: dict[Stage, str] = {}
    memory = ""  # of the chosen instances, except vision, which writes where the encoders are
    for stage in hosts if media else (Stage.PREFILL, Stage.DECODE):
        near = [name for name in hosts[stage] if memories[name] == memory] or hosts[stage]
        own = [name for name in near if name in chosen.values()]
        chosen[stage] = min(own or near, key=pending.__getitem__)
        memory = memories[chosen[stage]] if stage is not Stage.VISION else ""
    if placement.encodes_for_others:
        return Route(chosen[Stage.VISION], (chosen[Stage.ENCODE],), ENGINE)
    prefill, decode = chosen[Stage.PREFILL], chosen[Stage.DECODE]
    if not media or placement.encoded_elsewhere:
        return Route(prefill=prefill, decode=decode)
    encoders = [name for name in hosts[Stage.ENCODE] if memories[name] == memories[chosen[Stage.ENCODE]]]
    return Route(chosen[Stage.VISION], tuple(encoders) if placement.irp else (chosen[Stage.ENCODE],), prefill, decode)
