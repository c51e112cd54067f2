"""What came back: a record for each turn that was sent, and all of a run."""

from typing import Literal

import msgspec

Phase = Literal["queue", "fetch", "analyse", "vision", "encode", "prefill", "handoff", "decode"]


class Record(msgspec.Struct, kw_only=True):
    """A turn and its answer. Times are seconds after the start of the run; tokens that came together share one.

    `due` is when it should have been sent, which all its latencies count from: a client that falls behind cannot hide a
    server's delay (coordinated omission).
    """

    request: str
    turn: int = 0
    kind: str
    due: float
    sent: float
    token_times: list[float] = []
    ended: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    video_seconds: float = 0.0
    text: str = ""
    status: int | None = None  # HTTP's, if it answered
    error: str | None = None  # why there is no complete answer
    right: bool | None = None  # whether the answer is the right choice, where that is known
    phases: dict[Phase, float] = {}  # seconds, from the server's own trace


class Run(msgspec.Struct, kw_only=True):
    """All that a run has found, and under which circumstances. `interrupted` says why it is not complete."""

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
    seconds: float = 0.0
    records: list[Record] = []
    interrupted: str | None = None
