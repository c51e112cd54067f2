"""Define the records of turns, and their bytes: the same structs give the same bytes, to the last bit of a number."""

from collections.abc import Callable
from typing import NamedTuple, get_args

import msgspec
from msgspec.msgpack import Decoder, Encoder

from unifiedserve.config import Order
from unifiedserve.placement import Stage
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.step_costs import StepCosts
from unifiedserve.scheduling.turn import Decision, Event, Facts, Turn
from unifiedserve.scheduling.turn.vision import VisionDecision, VisionEvent, VisionFacts, VisionTurn


class Made(NamedTuple):
    """Record that a turn of the language stages was made with these arguments."""

    hosted: list[Stage]
    budget: Budget
    rests: bool
    share: float
    steps: StepCosts = StepCosts()

    def turn(self) -> Turn:
        """Make it again."""
        return Turn(self.hosted, self.budget, rests=self.rests, share=self.share, steps=self.steps)


class MadeVision(NamedTuple):
    """Record that a turn of vision was made with this argument."""

    order: Order

    def turn(self) -> VisionTurn:
        """Make it again."""
        return VisionTurn(self.order)


class Taken(NamedTuple):
    """Record that a turn was taken."""

    facts: Facts
    decision: Decision


class Between(NamedTuple):
    """Record that a turn was taken between two layers of the encoder."""

    facts: Facts
    decision: Decision


class Looked(NamedTuple):
    """Record that a turn of vision was taken."""

    facts: VisionFacts
    decision: VisionDecision


Decided = Taken | Between | Looked
Record = Made | MadeVision | Event | VisionEvent | Decided

_ENCODER = Encoder()
_NAMED = Decoder(tuple[str, msgspec.Raw])
_DECODE: dict[str, Callable[[msgspec.Raw], Record]] = {kind.__name__: Decoder(kind).decode for kind in get_args(Record)}


def encode(record: Record) -> bytes:
    """Return the bytes of a record."""
    return _ENCODER.encode((type(record).__name__, record))


def decode(data: bytes) -> Record:
    """Return the record of these bytes. Raises msgspec.DecodeError or KeyError if they are none."""
    kind, body = _NAMED.decode(data)
    return _DECODE[kind](body)
