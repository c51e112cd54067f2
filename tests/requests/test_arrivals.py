"""What is read for a request that is being admitted ends when its client leaves."""

import asyncio
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from unifiedserve.config import EngineConfig
from unifiedserve.engine.requests.arrivals import Arrivals
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import GenerateRequest
from unifiedserve.reading.readers import Cancellation
from unifiedserve.scheduling import Outlook


class Reading:
    """An intake that reads a medium for as long as somebody wants it."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    def take(self, request: GenerateRequest, arrival: float, outlook: Outlook, cancellation: Cancellation) -> Any:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert cancellation.begin(ours)
            self.begun.set()
            ours.recv(1)
            cancellation.end(ours)
        self.ended.set()
        raise RequestError("nobody waits for it any more")


class Empty(list[Any]):
    """A table of an engine without requests."""

    queue = SimpleNamespace(wait=lambda requests: 0.0)
    waiting = 0


async def test_it_ends_when_the_client_leaves() -> None:
    intake, anything = Reading(), SimpleNamespace(check=lambda: None)
    unused: Any = None
    table: Any = Empty()
    health: Any = anything
    arrivals = Arrivals(EngineConfig(), intake, table, unused, health, unused, unused)  # type: ignore[arg-type]
    taking = asyncio.create_task(arrivals.take(GenerateRequest(id="image")))
    await asyncio.to_thread(intake.begun.wait)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    await asyncio.to_thread(intake.ended.wait)
    arrivals.close()
