"""The engine as the HTTP side needs it."""

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from unifiedserve.config import EngineConfig
from unifiedserve.messages.api import Delta, GenerateRequest
from unifiedserve.observe.live import Live
from unifiedserve.observe.metrics import Metrics, Observed


class Observation(Observed, Protocol):
    """What can be seen of an engine at any time."""

    def trace(self, request_id: str | None = None) -> dict[str, Any]: ...


class ServingEngine(Protocol):
    """`generate` raises RequestError; closing its generator aborts the request. Healthy: all workers live.

    `check_room` raises RequestError while `generate` would refuse any request.
    """

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
    def observation(self) -> Observation: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def healthy(self) -> bool: ...

    def check_room(self) -> None: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]: ...
