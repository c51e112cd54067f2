"""A request in a simulated engine."""

from dataclasses import dataclass, field

from unifiedserve.messages.pages import Window
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Load, Stage
from unifiedserve.scheduling.simulation.arrival import Arrival
from unifiedserve.scheduling.turn import Shape

_NOTHING = Shape(0, 0)  # until it is taken in


@dataclass(slots=True, eq=False)
class Request:
    """A request, its place in the queues, what it needs, and when its tokens came (seconds).

    A preempted one starts anew, and what it had generated is part of its prompt. Media that do not fit into their
    buffers go through a `window`.
    """

    arrival: Arrival
    ticket: Ticket
    shape: Shape = _NOTHING
    tokens: list[float] = field(default_factory=list)
    window: Window | None = None
    offered: bool = False  # who is to decode it may have read some of its pages
    decodes: bool = False  # nothing of it is left in an earlier stage

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
