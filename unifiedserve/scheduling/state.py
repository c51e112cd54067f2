"""What the schedulers see of the requests, and what they answer."""

from dataclasses import dataclass, field
from typing import NamedTuple

from unifiedserve.messages.ticket import Ticket


@dataclass(slots=True)
class VisionState:
    """A request whose media wait for, or are in, decoding. `pages` of the patch buffer hold them all."""

    ticket: Ticket
    pages: int
    admitted: bool = False


@dataclass(slots=True)
class Unit:
    """An independent piece of encoder work (an image, or a temporal group of a video)."""

    tokens: int
    position: int  # of its first visual token in the prompt
    pages: int  # of the visual buffer
    ready: bool = False  # its patches are there
    encoded: bool = False
    cached: bool = False  # its visual tokens are there: it need not be decoded, and encoding it takes no time

    @property
    def cost(self) -> int:
        """Return how many tokens the encoder must compute."""
        return 0 if self.cached else self.tokens


@dataclass(slots=True)
class PrefillState:
    """A request between arrival and its first token."""

    ticket: Ticket
    num_tokens: int
    kv_pages: int
    units: list[Unit] = field(default_factory=list)
    prefilled: int = 0
    admitted: bool = False  # holds its KV pages
    reserved: bool = False  # its visual pages are set aside
    whole_units: bool = False  # no chunk may end within one

    @property
    def all_ready(self) -> bool:
        """Tell whether the patches of all its media have been decoded."""
        return all(unit.ready for unit in self.units)

    @property
    def reach(self) -> int:
        """Return the end of the prompt prefix whose visual tokens are all encoded."""
        return next((unit.position for unit in self.units if not unit.encoded), self.num_tokens)

    @property
    def all_encoded(self) -> bool:
        """Tell whether the visual tokens of all its media have been encoded."""
        return all(unit.encoded for unit in self.units)

    def chunk_end(self, most: int) -> int:
        """Return where a chunk of up to `most` tokens ends; one that begins with a whole unit may be longer."""
        end = min(self.reach, self.prefilled + most)
        if self.whole_units:
            for unit in self.units:
                if unit.position < end < unit.position + unit.tokens:
                    return unit.position if unit.position > self.prefilled else unit.position + unit.tokens
        return end

    @property
    def visual_pages(self) -> int:
        """Return how many pages of the visual buffer all its units need."""
        return sum(unit.pages for unit in self.units)


@dataclass(slots=True)
class DecodeState:
    """A running sequence: `num_tokens` of context after its next step, in `pages` KV pages, some of which hold a
    recurrent state instead of tokens."""

    ticket: Ticket
    index: int
    num_tokens: int
    pages: int
    state_pages: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """Return the uid of the request and the number of the answer."""
        return self.ticket.uid, self.index

    @property
    def turn(self) -> tuple[tuple[int, float, int], int]:
        """Sort sequences: by their requests' turns, then by the numbers of the answers."""
        return self.ticket.turn, self.index


class Pace(NamedTuple):
    """The last step that decoded (monotonic seconds), and what goes on elsewhere: whether stages have work for the
    cores, how many requests wait for their first token, and whether whole prompts are prefilled, to join very soon.
    """

    started: float = float("-inf")
    ended: float = float("-inf")
    others_work: bool = False
    waiting: int = 0
    joining: bool = False


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that work took lately: a step that only decodes, and each token that comes on top; 0: unknown."""

    decode: float = 0.0
    prompt_token: float = 0.0
    visual_token: float = 0.0


@dataclass(slots=True)
class State:
    """All that a language worker holds, requests by their turn, the pages that are free, and the time."""

    prefills: list[PrefillState]
    decodes: list[DecodeState]
    kv_free: int
    kv_total: int
    visual_free: int  # neither in use nor set aside
    now: float = 0.0  # monotonic seconds
    pace: Pace = field(default_factory=Pace)
    costs: Costs = field(default_factory=Costs)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one step. `prefill_tokens` 0 means unlimited, and so does `slo_tbt` 0 (seconds between tokens)."""

    prefill_tokens: int
    encode_tokens: int
    max_running: int
    kv_page_tokens: int
    kv_reserve: int = 0
    slo_tbt: float = 0.0
    rest: float = 0.1  # of a step that decodes, at least, for others that have work
    stretch: float = 1.0  # times `slo_tbt` while others are about to join
    overlap: bool = True  # encode while media are decoded, prefill while they are encoded


class EncodeWork(NamedTuple):
    """Encode units of a request."""

    uid: int
    units: list[int]


class Chunk(NamedTuple):
    """Prompt tokens [start, stop) of a request."""

    uid: int
    start: int
    stop: int


class Plan(NamedTuple):
    """One step: units to encode, prompt chunks to prefill, sequences (uid, index) to advance or preempt.

    A plan without work says when (monotonic seconds) there will be some even if nothing happens meanwhile.
    """

    encode: list[EncodeWork] = []  # noqa: RUF012
    prefill: list[Chunk] = []  # noqa: RUF012
    decode: list[tuple[int, int]] = []  # noqa: RUF012
    preempt: list[tuple[int, int]] = []  # noqa: RUF012
    wait_until: float = float("inf")

    @property
    def has_work(self) -> bool:
        """Tell whether the step does anything."""
        return bool(self.encode or self.prefill or self.decode or self.preempt)
