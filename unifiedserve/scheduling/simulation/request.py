"""Follow a request in a simulated engine."""

from dataclasses import dataclass, field

import msgspec

from unifiedserve.messages.pages import Window
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Load, Stage
from unifiedserve.scheduling.simulation.arrival import Arrival, FreePages
from unifiedserve.scheduling.turn import Shape

_NOTHING = Shape(0, 0)  # until it is taken in


@dataclass(slots=True, eq=False)
class _Held:
    """Count the pages of a memory that are not `free`."""

    free: FreePages
    kv: int = 0
    visual: int = 0
    patch: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """Hold a request, its place in the queues, its needs, and its tokens' times (seconds).

    A preempted one starts again, and what it had generated is part of its prompt. Media that do not fit into their
    buffers go through a `window`. If something of it is `lost` with a worker, another one takes its place.
    """

    arrival: Arrival
    ticket: Ticket
    shape: Shape = _NOTHING
    tokens: list[float] = field(default_factory=list)
    window: Window | None = None
    offered: bool = False  # its decoder may have read some of its pages
    decodes: bool = False  # nothing of it is left in an earlier stage
    prefilled: bool = False  # its first token has come, since it began
    lost: bool = False
    _held: list[_Held] = field(default_factory=list)

    def take(self, free: FreePages, *, kv: int = 0, visual: int = 0, patch: int = 0) -> None:
        """Take pages of a memory, or give them back (negative). A lost request keeps what it holds."""
        if self.lost:
            return
        held = next((held for held in self._held if held.free is free), None)
        if held is None:
            self._held.append(held := _Held(free))
        held.kv, held.visual, held.patch = held.kv + kv, held.visual + visual, held.patch + patch
        free.kv, free.visual, free.patch = free.kv - kv, free.visual - visual, free.patch - patch

    def give_all(self) -> None:
        """Give back all pages that it holds."""
        for held in self._held:
            held.free.kv += held.kv
            held.free.visual += held.visual
            held.free.patch += held.patch
        self._held.clear()

    def anew(self, uid: int) -> "Request":
        """Return what takes its place: the same request, which goes on after the tokens that have come."""
        return Request(self.arrival, msgspec.structs.replace(self.arrival.ticket, uid=uid), tokens=self.tokens)

    @property
    def load(self) -> Load:
        """Return the tokens that are left of it in each stage."""
        visual = sum(self.arrival.units)
        prompt = {Stage.VISION: visual, Stage.ENCODE: visual, Stage.PREFILL: self.shape.tokens}
        return Load(self.ticket.route, ({} if self.tokens else prompt) | {Stage.DECODE: int(self.left > 0)})

    def needs(self, instance: str) -> bool:
        """Tell whether an instance has a part in what is still to be done."""
        stages = [Stage.DECODE] if self.decodes else Stage
        return self.left > 0 and any(instance in self.ticket.route.hosts(stage) for stage in stages)

    @property
    def left(self) -> int:
        """Return how many tokens it still wants."""
        return self.arrival.generate - len(self.tokens)
