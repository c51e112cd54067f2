"""What an instance knows at its turn, what has happened since its last one, and what it decides."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unifiedserve.config import Stage
from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling.state import Chunk, DecodeState, EncodeWork, Plan

Key = tuple[int, int]  # uid of a request, number of an answer


class UnitShape(NamedTuple):
    """An encode unit as it comes: see `Unit`."""

    tokens: int
    position: int
    pages: int
    ready: bool = False
    encoded: bool = False
    cached: bool = False


class Shape(NamedTuple):
    """What a request needs: prompt tokens, KV pages, and units; with `whole_units` no chunk may end within one."""

    tokens: int
    kv_pages: int
    units: Sequence[UnitShape] = ()
    whole_units: bool = False


class Begin(NamedTuple):
    """A request has come to an instance that encodes or prefills."""

    ticket: Ticket
    shape: Shape


class Ready(NamedTuple):
    """The patches of a unit are there."""

    uid: int
    unit: int


class Encoded(NamedTuple):
    """The visual tokens of a unit have come from where it was encoded."""

    uid: int
    unit: int


class Handed(NamedTuple):
    """An answer has come with its first token, to be decoded."""

    state: DecodeState


class Took(NamedTuple):
    """A request has got all of its KV pages."""

    uid: int


class Streamed(NamedTuple):
    """A sequence after a pass: the tokens that it got, the pages that it holds, and whether it has ended."""

    key: Key
    tokens: int
    pages: int
    ended: bool


class Stepped(NamedTuple):
    """A forward pass has ended, or several alike that followed each other.

    `times` (monotonic seconds) are when the first one began and when each ended; `beside` tells whether other workers
    did heavy work meanwhile.
    """

    times: Sequence[float]
    chunks: Sequence[Chunk]
    streams: Sequence[Streamed]
    beside: bool


class Batched(NamedTuple):
    """A batch of the encoder, of so many visual tokens, has ended; it began at `start` (monotonic seconds)."""

    work: Sequence[EncodeWork]
    tokens: int
    start: float
    end: float


class Gone(NamedTuple):
    """A sequence has lost its pages: it was preempted, or aborted."""

    key: Key


Event = Begin | Ready | Encoded | Handed | Took | Stepped | Batched | Gone


class Free(NamedTuple):
    """The pages that nobody uses, and all of the KV cache's."""

    kv: int
    kv_total: int
    visual: int


class Around(NamedTuple):
    """The other workers: whether their heavy stages work, and how many requests there wait for their first token or
    are about to get it; and the share that heavy work may have beside streams.
    """

    work: bool = False
    waiting: int = 0
    joining: bool = False
    share: float = 1.0


class Facts(NamedTuple):
    """The time (monotonic seconds), and all that was not known at the last turn."""

    now: float
    events: Sequence[Event]
    free: Free
    around: Around = Around()


class Tells(NamedTuple):
    """What the other workers may know; None is what this one has no part in.

    `tbt` are the seconds between tokens that the share of heavy work follows from; 0: not measured.
    """

    working: Mapping[Stage, bool]
    waiting: int | None = None
    joining: bool = False
    share: float | None = None
    tbt: float = 0.0


class Decision(NamedTuple):
    """What to do now, and what to tell before; a pass without prompts may have to leave half of the cores."""

    plan: Plan
    tells: Tells
    leaves_cores: bool = False
