"""Define what the schedulers see of the requests, and what they answer."""

from bisect import insort
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from unifiedserve.config import Order, Scheduling
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.ticket import Place, Ticket
from unifiedserve.placement import FIRST_MEMORY
from unifiedserve.scheduling.step_costs import StepCosts

Rank = tuple[bool, int, float, int]
NO_RANK: Rank = (False, 0, 0.0, 0)


@dataclass(slots=True, eq=False)
class VisionState:
    """Describe a request whose media wait for, or are in, decoding.

    So many pages of a memory's patch buffer hold them all, and so many of its visual buffer what is encoded of them.
    """

    ticket: Ticket
    patch_pages: int
    visual_pages: int
    memory: str = FIRST_MEMORY
    admitted: bool = False  # holds them
    rank: Rank = NO_RANK
    rank_ends: float = float("-inf")

    @property
    def left(self) -> float:
        """Return the share of the request's work that is still to be done: all, for the other stages come later."""
        return 1.0

    @property
    def place(self) -> Place:
        """Return its place in the order of service."""
        return self.ticket.priority, self.rank[2]

    @property
    def begun(self) -> bool:
        """Tell whether its media are in decoding."""
        return self.admitted

    def admit(self) -> None:
        """Note that its media are in decoding, and that it holds all pages for that."""
        self.admitted, self.rank_ends = True, float("-inf")


@dataclass(slots=True)
class Unit:
    """Describe an independent piece of encoder work (an image, or a temporal group of a video)."""

    tokens: int
    position: int  # of its first visual token in the prompt
    ready: bool = False  # its patches are here
    encoded: bool = False
    cached: bool = False  # its visual tokens are in the cache: it need not be decoded, and encoding it takes no time

    @property
    def cost(self) -> int:
        """Return how many tokens the encoder must compute."""
        return 0 if self.cached else self.tokens


@dataclass(slots=True, eq=False)
class PrefillState:
    """Describe a request between arrival and its first token. Its methods, which are verbs, note its progress."""

    ticket: Ticket
    num_tokens: int
    kv_pages: int
    units: list[Unit] = field(default_factory=list)
    prefilled: int = 0
    admitted: bool = False  # holds its KV pages
    decoding: bool = False  # its media are: it has the pages for all of them, and for their visual tokens
    decoded: bool = False  # no more patches come
    whole_units: bool = False  # no chunk may end within one
    prefills_here: bool = True  # else it is here to be encoded, in part or as a whole
    room_pages: int = 0  # of the visual buffer, for units that are encoded in another memory; 0: none are
    has_room: bool = False  # holds these
    offered: list[int] = field(default_factory=list)  # units whose visual tokens are there, and can be read
    window: int = 0  # units that may lie between what is prefilled and `reach`; more may not come then; 0: any number
    rank: Rank = NO_RANK
    rank_ends: float = float("-inf")
    reach: int = 0  # end of the prompt prefix whose visual tokens are all encoded
    to_encode: list[int] = field(default_factory=list)  # units that are ready, ascending
    _first_left: int = 0  # unit that is not encoded
    _first_unread: int = 0  # unit that is not prefilled as a whole
    _uncoded: int = 0  # visual tokens that the encoder has not computed
    work: int = 1  # tokens that the encoder and prefill compute of it in all

    def __post_init__(self) -> None:
        self.to_encode = [i for i, unit in enumerate(self.units) if unit.ready and not unit.encoded]
        self._uncoded = sum(unit.cost for unit in self.units if not unit.encoded)
        self.work = max(1, self.tokens_left)
        self._find_reach()

    @property
    def all_encoded(self) -> bool:
        """Tell whether the visual tokens of all its media have been encoded."""
        return self._first_left == len(self.units)

    @property
    def done(self) -> bool:
        """Tell whether nothing is left to be done for it here."""
        if self.prefills_here:
            return self.prefilled == self.num_tokens
        return self.all_encoded or (self.decoded and not self.to_encode)

    @property
    def begun(self) -> bool:
        """Tell whether it holds pages that others wait for."""
        return self.admitted or self.decoding

    @property
    def place(self) -> Place:
        """Return its place in the order of service."""
        return self.ticket.priority, self.rank[2]

    @property
    def waits_for_pages(self) -> bool:
        """Tell whether it could begin to be prefilled if it had its KV pages."""
        return not self.admitted and self.reach > self.prefilled and (self.decoding or self.all_encoded)

    @property
    def window_is_full(self) -> bool:
        """Tell whether no more units may come until some are prefilled."""
        if not self.window:
            return False
        while self._first_unread < self._first_left and self._ends(self._first_unread) <= self.prefilled:
            self._first_unread += 1
        return self._first_left - self._first_unread >= self.window

    @property
    def tokens_left(self) -> int:
        """Return how many tokens the encoder and prefill have still to compute."""
        return self._uncoded + (self.num_tokens - self.prefilled if self.prefills_here else 0)

    @property
    def left(self) -> float:
        """Return the share of its work that is still to be done."""
        return self.tokens_left / self.work

    def decode_unit(self, number: int) -> None:
        """Note that the patches of a unit are here."""
        self.units[number].ready = True
        insort(self.to_encode, number)
        self._begin_decoding()

    def encode_unit(self, number: int) -> None:
        """Note that the visual tokens of a unit are there, wherever it was encoded."""
        unit = self.units[number]
        if unit.encoded:
            return
        if number in self.to_encode:
            self.to_encode.remove(number)
        unit.encoded = True
        self._uncoded -= unit.cost
        self._find_reach()
        self._begin_decoding()
        self.rank_ends = float("-inf")

    def pull(self, units: Collection[int]) -> None:
        """Note that these are being read from another memory. There is room for all of them."""
        self.has_room = True
        self.offered = [unit for unit in self.offered if unit not in units]

    def prefill(self, stop: int) -> None:
        """Note that the keys and values of all tokens before `stop` are there."""
        if stop != self.prefilled:
            self.prefilled = stop
            self.rank_ends = float("-inf")

    def admit(self) -> None:
        """Note that it holds its KV pages."""
        self.admitted, self.rank_ends = True, float("-inf")

    def chunk_end(self, most: int) -> int:
        """Return where a chunk of up to `most` tokens ends; one that begins with a whole unit may be longer."""
        end = min(self.reach, self.prefilled + most)
        if self.whole_units:
            for unit in self.units:
                if unit.position < end < unit.position + unit.tokens:
                    return unit.position if unit.position > self.prefilled else unit.position + unit.tokens
        return end

    def _ends(self, number: int) -> int:
        return self.units[number].position + self.units[number].tokens

    def _begin_decoding(self) -> None:
        if not self.decoding:
            self.decoding, self.rank_ends = True, float("-inf")

    def _find_reach(self) -> None:
        units = self.units
        while self._first_left < len(units) and units[self._first_left].encoded:
            self._first_left += 1
        if self.prefills_here:
            self.reach = units[self._first_left].position if self._first_left < len(units) else self.num_tokens


@dataclass(slots=True)
class DecodeState:
    """Describe a running sequence.

    It has `num_tokens` of context after its next step, in `pages` KV pages, some of which hold a recurrent state
    instead of tokens.
    """

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


class WaitingAnswers(NamedTuple):
    """Describe answers of a request whose pages are in another memory. Here they need so many of each pool.

    Of the KV cache they need `held` less, which were taken early: see `EarlyPages`.
    """

    ticket: Ticket
    kv_pages: int
    visual_pages: int = 0
    held: int = 0

    @property
    def place(self) -> Place:
        """Return their place in the order of service."""
        return self.ticket.priority, self.ticket.arrival


class EarlyPages(NamedTuple):
    """Count the full KV pages of a prompt that another memory still prefills. Its answers will come from there.

    So many can be read, and `held` more have pages here.
    """

    ticket: Ticket
    offered: int = 0
    held: int = 0


class Pace(NamedTuple):
    """Describe the last step that decoded (monotonic seconds), and what goes on elsewhere.

    Other stages may have work for the cores, so many requests wait for their first token, and some may be about to join
    the streams.
    """

    started: float = float("-inf")
    ended: float = float("-inf")
    others_work: bool = False
    waiting: int = 0
    joining: bool = False


@dataclass(slots=True)
class State:
    """Hold all that a language worker has, the pages that are free, and the time.

    Prefills are in the order in which they are served (`Queue`), sequences and answers in that of their turns. Those
    prefills that are `offering` have units that can be read from another memory.
    """

    prefills: list[PrefillState]
    decodes: list[DecodeState]
    kv_free: int
    kv_total: int
    now: float = 0.0  # monotonic seconds
    pace: Pace = field(default_factory=Pace)
    costs: Costs = field(default_factory=Costs)
    steps: StepCosts = field(default_factory=StepCosts)
    first_elsewhere: Place | None = None  # that waits for KV pages in another instance
    visual_free: int = 0
    offering: list[PrefillState] = field(default_factory=list)
    arriving: list[WaitingAnswers] = field(default_factory=list)
    early: list[EarlyPages] = field(default_factory=list)  # in the order of their turns
    shares_kv: bool = False  # other instances take pages of the KV cache, too


@dataclass(frozen=True, slots=True)
class Budget:
    """Limit one step. `prefill_tokens` 0 means unlimited, and so does `slo_tbt` 0 (seconds between tokens)."""

    prefill_tokens: int
    encode_tokens: int
    max_running: int
    kv_page_tokens: int
    kv_reserve: int = 0
    slo_tbt: float = 0.0
    order: Order = "fcfs"
    short_tokens: int = 0  # that are left of a request for which a share of each step is kept, at most; 0: for none
    step_seconds: float = float("inf")  # of a step that prefills, where a share is kept for short requests
    rest: float = 0.1  # of a step that decodes, at least, for others that have work
    stretch: float = 1.0  # times `slo_tbt` while more requests wait for their first token than there are streams
    stretch_joining: float = 1.0  # the same while some are about to join the streams
    holds: bool = False  # what is measured stays below `slo_tbt`: see TbtControl
    pace: float = 0.0  # times what a step takes with nothing beside it: what is held is not below that
    fills: bool = False  # the encoder's batches from all that is ready, for a small one takes as long as a full one
    least_prompt: int = 16  # tokens of a step that decodes, too, however little time is left
    least_visual: int = 1  # the same, encoded beside it
    overlap: bool = True  # encode while media are decoded, prefill while they are encoded
    scheduling: Scheduling = "adaptive"
    step_cap: float = 0.0  # seconds of a step where no sequence decodes; 0: no limit
    enough: int = 256  # prompt tokens that a step which ends a prompt is filled up to; with fewer weights are reread


class EncodeWork(NamedTuple):
    """Encode units of a request."""

    uid: int
    units: list[int]


class Chunk(NamedTuple):
    """Select prompt tokens [start, stop) of a request."""

    uid: int
    start: int
    stop: int


class Pull(NamedTuple):
    """Name pages of a request to be read from another memory: of these units or, without any, of its answers.

    With `early` they are so many full ones of its prompt, whose answers have not come.
    """

    uid: int
    units: list[int] = []  # noqa: RUF012
    early: int = 0


class Plan(NamedTuple):
    """Plan one step: units to encode, prompt chunks to prefill, sequences (uid, index) to advance or preempt.

    Pages that are to be pulled are read beside this step and the next ones; before, requests (uid) `forgo` what they
    have read early. A plan without work says when (monotonic seconds) there will be some even if nothing happens
    meanwhile.
    """

    encode: list[EncodeWork] = []  # noqa: RUF012
    prefill: list[Chunk] = []  # noqa: RUF012
    decode: list[tuple[int, int]] = []  # noqa: RUF012
    preempt: list[tuple[int, int]] = []  # noqa: RUF012
    pull: list[Pull] = []  # noqa: RUF012
    forgo: list[int] = []  # noqa: RUF012
    wait_until: float = float("inf")

    @property
    def has_work(self) -> bool:
        """Tell whether the step computes anything."""
        return bool(self.encode or self.prefill or self.decode or self.preempt or self.forgo)
