"""What the HTTP side needs of an engine, and what all replies have in common."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from unifiedserve.config import EngineConfig
from unifiedserve.live import Live
from unifiedserve.messages import Delta, GenerateRequest
from unifiedserve.metrics import Metrics
from unifiedserve.server.tally import Usage


class ServingEngine(Protocol):
    """`generate` raises RequestError; closing its generator aborts the request. Healthy: all workers live."""

    @property
    def config(self) -> EngineConfig: ...
    @property
    def model_name(self) -> str: ...
    @property
    def processor(self) -> Any: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def live(self) -> Live: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def healthy(self) -> bool: ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]: ...
    def trace(self, request_id: str | None = None) -> dict[str, Any]: ...
    def buffers(self) -> Mapping[str, tuple[int, int]]: ...
    def cached(self) -> Mapping[str, int]: ...
    def peaks(self) -> Mapping[str, int]: ...
    def stages(self) -> Mapping[str, tuple[int, int]]: ...
    @property
    def target_between_tokens(self) -> float | None: ...


class WholeReply(Protocol):
    """The answers to a request as they come, gathered."""

    def take(self, delta: Delta) -> Sequence[Any]:
        """The choices that a delta adds."""

    def keep(self, choices: Any) -> None:
        """Remember these choices for `completion`."""

    def completion(self) -> msgspec.Struct:
        """All that was kept, at the end."""


class GrowingReply(WholeReply, Protocol):
    """The same, also in chunks, which hold choices."""

    def opening(self) -> Sequence[Any]:
        """The choices that a stream begins with."""

    def chunk(self, *choices: Any, usage: Usage | None = None) -> msgspec.Struct: ...
    def usage(self) -> Usage: ...
