"""Record what came back: each turn that was sent, and all of a run."""

from typing import Literal

import msgspec

Timed = Literal["token", "chunk", "characters"]
Phase = Literal[
    "queue",
    "fetch",
    "analyse",
    "vision",
    "encode",
    "ep-pull",
    "prefill-queue",
    "prefill",
    "pd-pull",
    "handoff",
    "decode",
]


class Record(msgspec.Struct, kw_only=True):
    """Record a turn and its answer. Times are seconds after the start of the run; tokens that came together share one.

    `due` is when it should have been sent, which all its latencies count from: a client that falls behind cannot hide a
    server's delay (coordinated omission).
    """

    request: str
    turn: int = 0
    kind: str
    due: float
    sent: float
    token_times: list[float] = []
    timed: Timed = "token"  # by ids in each chunk; as chunks of one token; or chunks' tokens told by their characters
    ended: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    video_seconds: float = 0.0
    text: str = ""  # without the model's thoughts, where the server tells them apart
    answer: str = ""  # the server's id of it
    status: int | None = None  # HTTP's, if it answered
    error: str | None = None  # why there is no complete answer
    right: bool | None = None  # whether the answer is the right choice, where that is known
    phases: dict[Phase, float] = {}  # seconds, from the server's own trace
    ttft_there: float | None = None  # seconds, from the same


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Tell how well the client kept time.

    Lateness is in seconds: of requests after they were due (p50, p99, largest), and of the event loop. `cpu` is the
    share of one core that the client took. `ttft_here` is the mean TTFT as the client sees it, from when requests were
    sent, `ttft_there` by the server's own trace or metrics, if it has some: their difference holds the client's error
    and what the server does not count.
    """

    late_p50: float
    late_p99: float
    late_max: float
    loop_late_p99: float
    cpu: float
    ttft_here: float | None = None
    ttft_there: float | None = None


class Run(msgspec.Struct, kw_only=True):
    """Record all that a run has found, and its circumstances.

    `interrupted` says why it is not complete, `cautions` why its figures may not be what they seem.
    """

    name: str
    command: list[str]
    started: str  # ISO 8601, UTC
    seed: int
    url: str
    model: str
    workload: str
    arrivals: str
    versions: dict[str, str] = {}
    machine: dict[str, str] = {}
    media: str = ""  # how they travelled
    seconds: float = 0.0
    records: list[Record] = []
    timing: Timing | None = None
    cautions: list[str] = []
    interrupted: str | None = None
