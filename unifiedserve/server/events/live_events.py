"""Send what the stages do, live, as server-sent events."""

from collections.abc import AsyncIterator, Mapping

import msgspec

from unifiedserve.messages.seen import SeenInstance
from unifiedserve.server.answers.event_stream import event
from unifiedserve.server.protocol import Observation, ServingEngine

_COUNTERS_SECONDS = 0.2  # between looks at the counters
_MOST_LOOKS = 25  # without a word: then the same counters are sent again, to show that the connection lives


class Buffer(msgspec.Struct):
    """Count pages of a buffer, over all memories.

    Those `cached` are free, too, and so many were used at once at the `peak`.
    """

    used: int
    cached: int
    peak: int
    total: int


class Load(msgspec.Struct):
    """Count requests in a stage."""

    running: int
    waiting: int


class Streams(msgspec.Struct):
    """Tell the time between tokens beside heavy work, in seconds: the target, and the 99th percentile.

    The latter is told if known; heavy work gets a share of its budgets for it.
    """

    target: float
    tbt: float
    share: float


class Counters(msgspec.Struct, tag_field="type", tag="counters"):
    """Show the present buffers, stages' requests, workers, and how streams are held."""

    buffers: Mapping[str, Buffer]
    stages: Mapping[str, Load]
    workers: list[SeenInstance] = []
    streams: Streams | None = None


class LiveEvents:
    """Send events to one viewer, until it goes or the server stops. Counters come when they change."""

    def __init__(self, engine: ServingEngine, name: str | None) -> None:
        """Join the viewers; raise RequestError 503 if that is one viewer too many."""
        self._engine = engine
        self._viewer = engine.live.join(name)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        last, looks = None, 0
        while not self._viewer.closed:
            counters = _counters(self._engine.observation)
            if counters != last or looks == _MOST_LOOKS:
                yield event(counters)
                last, looks = counters, 0
            looks += 1
            for happened in await self._viewer.take(_COUNTERS_SECONDS):
                yield event(happened)

    async def aclose(self) -> None:
        self._engine.live.leave(self._viewer)


def _counters(seen: Observation) -> Counters:
    cached, peaks = seen.cached(), seen.peaks()
    buffers: dict[str, Buffer] = {}
    for key, (used, total) in seen.buffers().items():
        buffer = buffers.setdefault(key[1], Buffer(0, 0, 0, 0))
        buffer.used += used
        buffer.cached += cached.get(key, 0)
        buffer.peak += peaks.get(key, 0)
        buffer.total += total
    stages = {stage: Load(*counts) for stage, counts in seen.stages().items()}
    return Counters(buffers, stages, seen.instances(), _streams(seen))


def _streams(seen: Observation) -> Streams | None:
    held, target = seen.held(), seen.target_between_tokens
    return Streams(target, round(held[1], 3), round(held[0], 3)) if held and target else None
