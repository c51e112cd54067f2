"""Record a request in flight, as the engine keeps it."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from unifiedserve.engine.admission.admission import PlannedRequest
from unifiedserve.engine.caches import PromptContents
from unifiedserve.engine.requests.answer import Answer
from unifiedserve.engine.requests.failed_reads import FailedReads
from unifiedserve.engine.requests.spool import Spool
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import Delta, TokenLogprob
from unifiedserve.messages.encoding import EncodedUnit
from unifiedserve.messages.media import MediaKind
from unifiedserve.messages.pages import PageOffer
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource, PromptLogprobs, PromptVector


@dataclass(slots=True, eq=False)
class ActiveRequest:
    """Hold a request in flight: what a recomputation needs, and where the client reads.

    An *attempt* is one run of some of the answers through the stages under a uid of its own; a preempted
    answer gets a further one. A request has ended when it has no attempts left.
    """

    planned: PlannedRequest
    arrival: float  # monotonic seconds
    answers: list[Answer]
    sources: list[MediaSource] = field(default_factory=list)
    spool: Spool | None = None
    contents: PromptContents | None = None  # None: nothing of it is cached
    prompt_logprobs: list[TokenLogprob] | None = None  # of every token, as they come; None: not asked for
    outputs: asyncio.Queue[Delta | EncodedUnit | RequestError] = field(default_factory=asyncio.Queue)
    attempts: dict[int, set[int]] = field(default_factory=dict)  # uid -> answers still in it; RequestTable's
    pooled: bytes | None = None  # float32, of a request to embed
    cached_tokens: int = 0  # of the prompt, at the first attempt
    stale: bool = False  # what it was to reuse was gone when its turn came: it is computed in full
    work: float = 0.0  # seconds that it takes alone to encode and to prefill what is not cached, as estimated
    due: float = float("inf")  # monotonic seconds, by when its first token is owed
    stranded: set[int] = field(default_factory=set)  # answers in no attempt, until there are workers for them
    crashes: int = 0  # workers that died while they worked on it
    crashes_alone: int = 0  # of them, those that worked on nothing else
    suspect_media: bool = False  # one of them decoded or encoded media
    failed_reads: FailedReads = field(default_factory=FailedReads)
    ending: bool = False  # failed or aborted: only to be drained
    failed: bool = False  # its client hears of an error
    to_encode: dict[int, int] | None = None  # tokens of units that another node waits for; None: it is answered here
    is_lent: bool = False  # another node may read some of them
    lost_nodes: dict[str, str] = field(default_factory=dict)  # by URL, why a node did not encode what it was to
    callers_trace: Mapping[str, str] = field(default_factory=dict)  # headers, for the nodes that encode
    encode_rounds: int = 0  # in which all nodes were asked again
    wanted_at: float = 0.0  # monotonic seconds, when other nodes were asked to encode, and when the last of it was read
    read_at: float = 0.0

    @property
    def id(self) -> str:
        """Return the client's name of it."""
        return self.planned.request.id

    @property
    def viewer(self) -> str | None:
        """Return the name of the viewers that may see it live."""
        return self.planned.request.viewer

    @property
    def complete(self) -> bool:
        """Tell whether all its answers are."""
        return all(answer.finished for answer in self.answers)

    @property
    def begun(self) -> bool:
        """Tell whether any token has come."""
        return any(answer.last_token is not None for answer in self.answers)

    @property
    def unfinished(self) -> list[int]:
        """Return the numbers of the answers that are not complete."""
        return [index for index, answer in enumerate(self.answers) if not answer.finished]

    @property
    def media_bytes(self) -> Counter[MediaKind]:
        """Return the bytes of its media in memory, by kind."""
        return self.spool.bytes if self.spool else Counter()

    def ticket(self, uid: int) -> Ticket:
        """Return the place in the queues of an attempt."""
        return Ticket(uid, self.arrival, self.planned.request.priority)

    def learn(self, told: PromptLogprobs | PromptVector) -> None:
        """Take what was read off the prompt; that from before a worker died may come again."""
        if isinstance(told, PromptVector):
            self.pooled = told.data
        elif self.prompt_logprobs is not None:
            self.prompt_logprobs[told.start : told.start + len(told.tokens)] = told.tokens

    def tell_error(self, message: str, kind: ErrorKind, param: str | None = None) -> None:
        """End what the client reads with an error; `param` is the field of its request at fault."""
        self.failed = True
        self.outputs.put_nowait(RequestError(message, kind, param=param))

    def lend(self, unit: int, offer: PageOffer, now: float) -> int:
        """Tell another node where it can read a unit, and return its tokens; with the last one it is complete."""
        assert self.to_encode is not None
        self.is_lent = True
        self.outputs.put_nowait(EncodedUnit(unit, offer))
        left, tokens = sum(self.to_encode.values()), self.to_encode.pop(unit, 0)
        self.work *= 1 - tokens / max(1, left)
        if not self.to_encode:
            self.answers[0].finished, self.answers[0].last_token = True, now
        return tokens

    def encode_less(self, units: Collection[int]) -> None:
        """Leave out units that the cache has."""
        assert self.to_encode is not None
        for unit in units:
            self.to_encode.pop(unit)
        wanted = [
            msgspec.structs.replace(source, units=[n for n in source.wanted if source.first_unit + n in self.to_encode])
            for source in self.sources
        ]
        self.sources = [source for source in wanted if source.units]
        self.answers[0].finished = not self.to_encode

    def close(self) -> None:
        """Remove the media from shared memory."""
        if self.spool is not None:
            self.spool.close()
