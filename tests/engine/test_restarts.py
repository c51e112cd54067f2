"""Restarts of all workers, as the engine hears of them."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from unifiedserve.config import EngineConfig
from unifiedserve.engine.engine import Engine
from unifiedserve.messages.wire import Ready


class Workers:
    """Workers that are restarted when they are told to."""

    apart = False

    def __init__(self) -> None:
        self.memory = SimpleNamespace(pulses=SimpleNamespace(worked_on=lambda instance: set()))
        self.start = asyncio.Event()
        self.started = asyncio.Event()

    def incarnation(self, instance: str) -> int:
        return 0

    async def restart(self, *given: object, **options: object) -> None:
        await self.start.wait()
        self.started.set()


class Lifecycle:
    """Requests that there are none of."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **options: False


async def test_a_worker_that_was_up_before_a_restart_does_not_count_as_up_after_it() -> None:
    engine, workers = Engine(EngineConfig()), Workers()
    engine._running = cast(Any, SimpleNamespace(workers=workers, lifecycle=Lifecycle()))
    first, *others = [Ready(instance.name, decode_step=0.001) for instance in engine.roles.placement.instances]
    engine._handle_all([first, *others])
    assert engine.healthy
    engine._worker_ended(others[-1].instance, 1, 0)
    engine._handle_all([first])  # which it sent before it was ended, too
    workers.start.set()
    await workers.started.wait()
    await asyncio.sleep(0)
    engine._handle_all([*others])
    assert not engine.healthy
    engine._handle_all([first])
    assert engine.healthy
