"""Define what travels between the processes: page numbers and small structs, as MessagePack.

Requests flow engine -> (vision ->) encode -> prefill -> decode; tokens, spans and failures flow back to the engine.
`Abort` of a whole request goes to the hosts of all its stages in this order, each time behind what the stage before has
sent: it can never overtake the pages that it must free. Where several encode a request, prefill passes it on when it
has come from all of them. Where others decode than its route names, it goes to these. After decode it comes back as
`Drained`.
"""

from typing import Literal

import msgspec

from unifiedserve.errors import ErrorKind
from unifiedserve.messages.api import FinishReason, TokenLogprob
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.layouts import decode_layout
from unifiedserve.messages.media import MediaPlan, Source
from unifiedserve.messages.pages import PageOffer, Pages, PageSlice, Window
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Placement, Route, Stage

CachedBuffer = Literal["kv", "visual"]


class Span(msgspec.Struct):
    """Record a piece of work on the timeline. Times are seconds of the system-wide monotonic clock.

    `track` tells apart what one stage does at the same time: the decoder engines of vision. `tokens` counts the
    computed ones: of prompts, of images and videos, of answers. `on` names the decoder of a video's frames: "cpu" or
    "gpu". `host` counts the seconds that the host worked while a device was busy. `eager` is a step of decode for which
    the device had no recorded one. Of the tokens of answers `accepted` were among so many that had been `drafted`. An
    `instance` did it. Of pages that were pulled from another memory it has the `bytes`.
    """

    stage: Stage
    name: str
    start: float
    end: float
    requests: list[int]
    track: int = 0
    tokens: int = 0
    on: str = ""
    host: float = 0.0
    eager: bool = False
    drafted: int = 0
    accepted: int = 0
    instance: str = ""
    bytes: int = 0


class Reuse(msgspec.Struct, frozen=True, kw_only=True):
    """List what a request need not compute. Others may take the pages before it can: nothing is held for it.

    `prefix` are KV pages of its first tokens, the first `covered` encode units have tokens in these only, and `units`
    are pages of the visual buffer that hold further units' tokens. Where another memory has all the rest, prefill reads
    it from there: `offers`, by unit.
    """

    prefix: Pages = Pages()
    covered: int = 0
    units: dict[int, Pages] = {}
    offers: dict[int, PageOffer] = {}

    def has(self, unit: int) -> bool:
        """Tell whether a unit need not be encoded."""
        return unit < self.covered or unit in self.units or unit in self.offers


class PrefillRequest(msgspec.Struct, tag=True, kw_only=True):
    """Hand a request to the language stages. `indices` are the answers (of n) it must produce.

    After a preemption `token_ids` ends with what had been generated; `num_prompt` tells where.
    """

    ticket: Ticket
    token_ids: list[int]
    num_prompt: int
    media: list[MediaPlan]
    sampling: SamplingParams
    indices: list[int]
    embed: bool = False
    page_keys: list[bytes] | None = None  # of the full KV pages of `token_ids`; None: they are not to be remembered
    tail_media: list[bytes] = []  # keys of the media that have tokens after these pages
    unit_keys: list[bytes] = []  # of each encode unit; empty: they are not to be remembered
    reuse: Reuse = Reuse()
    window: Window | None = None  # that its media go through; None: the buffers hold them all

    @property
    def reads_prompt(self) -> bool:
        """Tell whether the hidden states of all its tokens are wanted."""
        return self.embed or self.sampling.prompt_logprobs is not None


class MediaSource(msgspec.Struct, kw_only=True):
    """Tell the vision stage where bytes are, and what to make of them.

    Of a video that is images one after the other `frames` are their sizes in bytes; an image has so many `pixels`.
    Errors call it `name`, and the client named it in the field `param`.
    Of the plan's units `units` are wanted, ascending (None: all); its first one is number `first_unit` of the request.
    """

    plan: MediaPlan
    name: str
    param: str = "messages"
    first_unit: int = 0
    units: list[int] | None = None
    where: Source = Source()
    frames: list[int] = []
    pixels: int = 0

    @property
    def wanted(self) -> list[int]:
        """Return the units to decode."""
        return list(range(self.plan.units)) if self.units is None else self.units


class VisionRequest(msgspec.Struct, tag=True, kw_only=True):
    """Hand vision its part of a request: media in prompt order.

    If it is `watched`, the engine is told of decoded units. Visual tokens of the other units (counted over the whole
    request) are in the cache, in the pages `cached`. With a `window` these are wanted, too, if they are gone when their
    turn comes.
    """

    ticket: Ticket
    media: list[MediaSource]
    cached: dict[int, Pages] = {}
    watched: bool = False
    window: Window | None = None


class Patches(msgspec.Struct, tag=True, kw_only=True):
    """Hand over encode units (counted over the whole request) with the pages of their patches.

    There is one list a unit. Pages of the visual buffer are taken for what is encoded of them: `visual`, one list a
    unit, too. Behind the `last` ones no more come for the request; encoders without any get a message without units.
    """

    uid: int
    units: list[int] = []
    pages: list[list[int]] = []
    visual: list[list[int]] = []
    last: bool = False


class Embeddings(msgspec.Struct, tag=True, kw_only=True):
    """Hand over an encoded unit (counted over the whole request): pages of the visual buffer with its tokens.

    Where the receiver has to read them from another memory there is an `offer` instead. They may have been `cached`.
    """

    uid: int
    unit: int
    pages: list[int]
    offer: PageOffer | None = None
    cached: bool = False


class Wanted(msgspec.Struct, tag=True):
    """Ask other nodes to encode units of a prompt. There is room for all of their visual tokens here.

    The engine answers with `Embeddings` as they are offered, and hears of each that was read by `Released`.
    """

    uid: int
    units: list[int]


class Room(msgspec.Struct, tag=True, kw_only=True):
    """Give pages of a request's window to its next units. Nobody needs what they hold."""

    uid: int
    patch: list[int] = []
    visual: list[int] = []


class Generation(msgspec.Struct, tag=True, kw_only=True):
    """Hold one answer: its tokens so far, and the KV pages that hold all but the last.

    Prefill hands it to decode: within a memory the KV stays where it is, only the page table travels. `visual` are
    rows of the visual buffer that its tokens attend to, page by page. The first `keyed` pages are remembered, the last
    of them by `last_key` (empty: none are to be); `tail_media` has tokens in the next one.
    """

    ticket: Ticket
    index: int
    token_ids: list[int]
    num_prompt: int
    pages: list[int]
    visual: list[PageSlice] = []
    position_offset: int
    sampling: SamplingParams
    keyed: int = 0
    last_key: bytes = b""
    tail_media: list[bytes] = []


class Answers(msgspec.Struct, tag=True):
    """Hand over the answers of a prompt to decode in another memory. That has to read their pages.

    Answers may share pages; each is in the `offer` once, under the number that the answers name it by.
    """

    uid: int
    generations: list[Generation]
    offer: PageOffer


class FilledPages(msgspec.Struct, tag=True):
    """Offer further full KV pages of a prompt. Its answers will be decoded in another memory than it is prefilled.

    `Answers` names them again. Without any no answers come: all have ended with their first tokens.
    """

    ticket: Ticket
    offer: PageOffer


class Released(msgspec.Struct, tag=True):
    """Report that offered pages were read, or are not wanted any more: of a unit, or of a prompt's answers (None)."""

    uid: int
    unit: int | None = None


class Abort(msgspec.Struct, tag=True):
    """Drop what `stage` holds of a request and go on to the next stage; or drop one finished answer of it in decode.

    It goes the request's own `route`, from its first stage on.
    """

    uid: int
    route: Route
    index: int | None = None
    stage: Stage = Stage.VISION


class HandOver(msgspec.Struct, tag=True):
    """Let `hosts`, in the same memory, decode what `instance` was to decode.

    It hands over what it has, and prefill sends what is still to come.
    """

    instance: str
    hosts: list[str]


class PagesFreed(msgspec.Struct, tag=True):
    """Report that pages came free that the receiver may be waiting for."""


class OutputReady(msgspec.Struct, tag=True):
    """Report that a thread of the receiver has finished something. It decodes media or encodes."""


class GrammarAhead(msgspec.Struct, tag=True):
    """Announce a request with a grammar, while it is tried out: what a grammar needs takes a while to load."""


class Placed(msgspec.Struct, tag=True):
    """Announce the instances from now on. The one named `changed` hosts other stages than before."""

    placement: Placement
    changed: str


class Reborn(msgspec.Struct, tag=True):
    """Announce that the worker of an instance has died. Later messages to it go to its next incarnation.

    To be answered by `Heard`, with the number.
    """

    number: int
    instance: str
    incarnation: int


class Forget(msgspec.Struct, tag=True):
    """Drop what `stage` holds of these attempts, which ended with another worker; nothing is passed on.

    To be answered by `Heard`, with the number.
    """

    number: int
    stage: Stage
    uids: list[int]


class Count(msgspec.Struct, tag=True):
    """Count the references that `stage` holds of pages which several requests share.

    To be answered by `Heard`, with the number.
    """

    number: int
    stage: Stage


class Heard(msgspec.Struct, tag=True):
    """Confirm that an instance has done what a message of this number asks for.

    Earlier messages of it have been sent. Where it was asked to count, `shared` has its references, by pool and page.
    """

    number: int
    instance: str
    shared: dict[str, dict[int, int]] = {}


class Ended(msgspec.Struct, tag=True):
    """Report that a worker of this generation has ended with a code.

    It comes behind all that the worker sent to the engine.
    """

    instance: str
    code: int
    generation: int


class Shutdown(msgspec.Struct, tag=True):
    """Leave the loop."""


class Token(msgspec.Struct):
    """Carry token `number` (from 0) of one answer.

    `finish` ends it, `error` the whole request: its grammar cannot go on. The first comes from prefill and the next
    from decode, so they may arrive the wrong way round.
    """

    uid: int
    index: int
    number: int
    token: TokenLogprob
    finish: FinishReason | None = None
    stop_reason: int | None = None
    error: str | None = None


class Ready(msgspec.Struct, tag=True):
    """Report that a worker is up. `decode_step` are the seconds of a lone decode step, if it hosts decode.

    `weights_sum` is that of the weights in a device's own memory, as a worker has found them that computes with them.
    """

    instance: str
    decode_step: float | None = None
    weights_sum: int | None = None
    incarnation: int = 0


class Unfit(msgspec.Struct, tag=True):
    """Report that a worker cannot be: its model or its devices are wrong. A restart would not help."""

    reason: str


class Rehearse(msgspec.Struct, tag=True):
    """Ask for the largest step that there can be, before there are any requests.

    Encode takes of a medium like this, if there is one, as many units as its budget lets it; a row of the patch buffer
    has `row_bytes`. A `share` that is known need not be tried out.
    """

    medium: MediaPlan | None
    row_bytes: int
    share: float | None = None


class Rehearsed(msgspec.Struct, tag=True):
    """Report that the largest step was done. `free` are the bytes of the device's own memory that nobody uses after it.

    Steps with `share` of the budgets for encoding and prefill are as long as streams beside them may wait.
    """

    free: int
    share: float = 1.0


class Kept(msgspec.Struct):
    """Announce pages that hold what `key` stands for, until they are taken again.

    They do so also when they are free.
    """

    buffer: CachedBuffer
    key: bytes
    pages: Pages


class WatchedUnits(msgspec.Struct):
    """Report decoded units of a watched request, and their pages. Units are counted over the whole request."""

    uid: int
    units: list[int]
    pages: list[Pages]


class Lookup(msgspec.Struct):
    """Count tokens of a request that a cache was asked for, and those it had."""

    uid: int
    buffer: CachedBuffer
    tokens: int
    hits: int


class PromptLogprobs(msgspec.Struct, tag=True):
    """Carry log probabilities of a prompt's tokens from position `start` on.

    All come before the prompt's end is reported.
    """

    uid: int
    start: int
    tokens: list[TokenLogprob]


class PromptVector(msgspec.Struct, tag=True):
    """Carry a prompt's pooled hidden state, float32. It comes before the prompt's end is reported."""

    uid: int
    data: bytes


class Report(msgspec.Struct, tag=True, kw_only=True):
    """Report what a worker's step produced, and how many requests each stage holds.

    `through` are requests that want no tokens, at the ends of their prompts. Pages in `kept` can be read from other
    memories at the `address` of the worker's carrier, if it has one.
    """

    instance: str
    tokens: list[Token] = []
    through: list[int] = []
    spans: list[Span] = []
    kept: list[Kept] = []
    address: str = ""
    lookups: list[Lookup] = []
    decoded: list[WatchedUnits] = []
    costs: Costs | None = None  # what the worker has learned of them, if anything is new
    counts: dict[Stage, tuple[int, int]] = {}


class Preempted(msgspec.Struct, tag=True):
    """Report that decode gave this answer's pages back. It must be recomputed.

    If they could not be read from another memory, there is a reason.
    """

    uid: int
    index: int
    reason: str = ""


class HandedOver(msgspec.Struct, tag=True):
    """Report that another instance of the same memory, `host`, decodes this answer now or later."""

    uid: int
    index: int
    host: str


class Stale(msgspec.Struct, tag=True):
    """Report that others took pages that the request was to reuse instead of its media. It must start again.

    If they could not be read elsewhere, there is a reason.
    """

    uid: int
    reason: str = ""


class Failed(msgspec.Struct, tag=True):
    """Report that the request cannot go on. `param` is its field at fault, if there is one."""

    uid: int
    message: str
    kind: ErrorKind
    param: str | None = None


class Drained(msgspec.Struct, tag=True):
    """Report that an aborted request has left every stage."""

    uid: int


Message = (
    PrefillRequest
    | VisionRequest
    | Patches
    | Embeddings
    | Wanted
    | Room
    | Generation
    | Answers
    | FilledPages
    | Released
    | Abort
    | HandOver
    | PagesFreed
    | OutputReady
    | GrammarAhead
    | Placed
    | Reborn
    | Forget
    | Count
    | Heard
    | Ended
    | Shutdown
    | Ready
    | Unfit
    | Rehearse
    | Rehearsed
    | PromptLogprobs
    | PromptVector
    | Report
    | Preempted
    | HandedOver
    | Stale
    | Failed
    | Drained
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message, dec_hook=decode_layout)


def pack(message: Message) -> bytes:
    return _encoder.encode(message)


def unpack(data: bytes) -> Message:
    return _decoder.decode(data)
