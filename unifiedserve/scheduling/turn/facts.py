"""Define what happens to an instance, what it sees at its turn, and its decisions."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from unifiedserve.messages.ticket import Place, Ticket
from unifiedserve.placement import Stage
from unifiedserve.scheduling.state import Chunk, DecodeState, Plan, WaitingAnswers

Key = tuple[int, int]  # uid of a request, number of an answer


class UnitShape(NamedTuple):
    """Describe an encode unit as it comes: see `Unit`."""

    tokens: int
    position: int
    ready: bool = False
    encoded: bool = False
    cached: bool = False


class Shape(NamedTuple):
    """Count what a request needs: prompt tokens, KV pages, and units. With `whole_units` no chunk may end within one.

    Where it is not prefilled here, some of its units are encoded here: those whose patches come. Where they are encoded
    in another memory `room_pages` of the visual buffer hold what is read from there. If it has a `window`, no more
    units come when so many are encoded and not prefilled.
    """

    tokens: int
    kv_pages: int
    units: Sequence[UnitShape] = ()
    whole_units: bool = False
    prefills_here: bool = True
    room_pages: int = 0
    window: int = 0


class Begin(NamedTuple):
    """Report that a request has come to an instance that encodes or prefills."""

    ticket: Ticket
    shape: Shape


class Ready(NamedTuple):
    """Report that the patches of a unit are here."""

    uid: int
    unit: int


class Decoded(NamedTuple):
    """Report that no more patches come for a request: those of all its units are here, or at other encoders."""

    uid: int


class Encoded(NamedTuple):
    """Report that the visual tokens of a unit have come from where it was encoded."""

    uid: int
    unit: int


class UnitOffered(NamedTuple):
    """Report that the visual tokens of a unit can be read from another memory."""

    uid: int
    unit: int


class AnswersOffered(NamedTuple):
    """Report that the answers of a prompt have come. Their pages can be read from another memory."""

    answers: WaitingAnswers


class PagesFilled(NamedTuple):
    """Report that so many more KV pages of a prompt are full. Another memory prefills it: see `EarlyPages`."""

    ticket: Ticket
    pages: int


class Pulling(NamedTuple):
    """Report that pages are being read from another memory, into those taken for them: see `Pull`."""

    uid: int
    units: Sequence[int]
    early: int = 0


class Forgone(NamedTuple):
    """Report that a request gave back the pages that it had read early. They can be read once more."""

    uid: int


class Handed(NamedTuple):
    """Report that an answer has come with its first token, to be decoded."""

    state: DecodeState


class Renewed(NamedTuple):
    """Report that a prefix which a waiting request can reuse has so many tokens now.

    The rest needs so many KV pages.
    """

    uid: int
    prefilled: int
    kv_pages: int


class Took(NamedTuple):
    """Report that a request has all of its KV pages."""

    uid: int


class Wrote(NamedTuple):
    """Report that the visual tokens of a unit were written here. Their pages were taken when it was decoded."""

    uid: int
    unit: int


class Batched(NamedTuple):
    """Report that a batch of the encoder has ended: of so many visual tokens, between these times (monotonic seconds).

    Without any there was nothing that had to be encoded.
    """

    tokens: int
    start: float
    end: float


class Streamed(NamedTuple):
    """Describe a sequence as it is now: the tokens of its context after its next step, and its pages.

    It `rests` while tokens are on their way that may be its last.
    """

    key: Key
    tokens: int
    pages: int
    rests: bool = False


class Launched(NamedTuple):
    """Report that a step of decode is under way whose tokens are not known yet."""

    streams: Sequence[Streamed]


class Stepped(NamedTuple):
    """Report that a forward pass over chunks and sequences has ended.

    Several alike that followed each other count as one. `times` (monotonic seconds) are when the first one began and
    when each ended; `beside` tells whether other workers did heavy work meanwhile. Sequences that are not in `streams`
    have ended.
    """

    times: Sequence[float]
    chunks: Sequence[Chunk]
    keys: Sequence[Key]
    streams: Sequence[Streamed]
    beside: bool


class Left(NamedTuple):
    """Report that a prompt is not wanted any more, if it is still here."""

    uid: int


class Stopped(NamedTuple):
    """Report that an answer, or all of a request's (None), has no pages here.

    It was preempted, is not wanted any more, or was handed over to another instance. Answers that are still to be read
    are not reported one by one, but when none of a request's are wanted any more.
    """

    uid: int
    answer: int | None = None


#: everything that can happen
Event = (
    Begin
    | Ready
    | Decoded
    | Encoded
    | UnitOffered
    | AnswersOffered
    | PagesFilled
    | Pulling
    | Forgone
    | Handed
    | Renewed
    | Took
    | Wrote
    | Batched
    | Launched
    | Stepped
    | Left
    | Stopped
)

Note = Callable[[Event], None]


class Free(NamedTuple):
    """Count the KV pages that are free, all KV pages, and the free visual ones."""

    kv: int
    kv_total: int
    visual: int = 0


class Around(NamedTuple):
    """Describe the other workers.

    Their heavy stages may work; so many requests there wait for their first token, or are about to get it. Heavy work
    has a share beside streams. One request comes first in the order of service that waits for KV pages there, and some
    workers may take pages of the same KV cache.
    """

    work: bool = False
    waiting: int = 0
    joining: bool = False
    share: float = 1.0
    first: Place | None = None
    shares_kv: bool = False


class Facts(NamedTuple):
    """Hold what an instance looks up at its turn. `now` is in monotonic seconds."""

    now: float
    free: Free
    around: Around = Around()


class Tells(NamedTuple):
    """Hold what the other workers may know. None is what this one has no part in.

    `tbt` are the seconds between tokens that the share of heavy work follows from; 0: not measured. `first` are the
    places of the first of all that wait for pages here, by stage; None if nobody does.
    """

    working: Mapping[Stage, bool]
    waiting: int | None = None
    joining: bool = False
    share: float | None = None
    tbt: float = 0.0
    first: Mapping[Stage, Place | None] = {}


class Decision(NamedTuple):
    """State what to do now, and what to tell before. A pass without prompts may have to leave half of the cores."""

    plan: Plan
    tells: Tells
    leaves_cores: bool = False
