"""What the workers of a simulated engine send each other (as `messages/wire.py`)."""

from dataclasses import dataclass, field
from typing import NamedTuple

from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling.simulation.arrival import Arrival
from unifiedserve.scheduling.state import DecodeState


@dataclass(slots=True, eq=False)
class Request:
    """A request, its place in the queues, and when its tokens came (seconds).

    A preempted one starts anew with what it had generated.
    """

    arrival: Arrival
    ticket: Ticket
    tokens: list[float] = field(default_factory=list)

    @property
    def uid(self) -> int:
        return self.ticket.uid

    @property
    def left(self) -> int:
        """Return how many tokens it still wants."""
        return self.arrival.generate - len(self.tokens)


class Begin(NamedTuple):
    """To vision, encode and prefill: a request has come."""

    request: Request


class Patches(NamedTuple):
    """To encode: the patches of a unit are there."""

    uid: int
    unit: int


class Encoded(NamedTuple):
    """To prefill: the visual tokens of a unit are there."""

    uid: int
    unit: int


class Prefilled(NamedTuple):
    """To decode: a request with its first token, and the pages that it holds."""

    request: Request
    state: DecodeState


class PagesFreed(NamedTuple):
    """To a stage that may wait for them."""


Message = Begin | Patches | Encoded | Prefilled | PagesFreed
