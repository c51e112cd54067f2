"""Restarts of all workers, as the engine hears of them."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock, call

import numpy as np
import pytest

from unifiedserve.config import EngineConfig
from unifiedserve.engine.engine import Engine
from unifiedserve.engine.requests.table import Lost
from unifiedserve.messages.wire import Count, Drained, Forget, Message, Ready
from unifiedserve.worker.damage import DAMAGED_WEIGHTS

ATTEMPT = 5


class Pool:
    """A pool with a page that is shared, as often as it should be."""

    def shared(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([1]), np.array([2])

    def correct(self, page: int, word: int, held: int) -> bool:
        return True


def memory() -> MagicMock:
    """Return the memory of workers whose first incarnations have died."""
    made = MagicMock(pools={("mem0", "kv"): Pool()})
    made.bear_anew.return_value = 1
    made.requests.return_value = set()
    made.pulses.worked_on.return_value = set()
    return made


class Workers:
    """Workers that answer nothing, and are restarted when they are told to."""

    apart = True

    def __init__(self) -> None:
        self.memory = memory()
        self.sent: list[Message] = []
        self.start = asyncio.Event()
        self.started = asyncio.Event()

    def incarnation(self, instance: str) -> int:
        return 0

    def send(self, instance: str, message: Message) -> None:
        self.sent.append(message)

    async def sum_weights(self) -> list[int]:
        return []

    async def revive(self, *given: object) -> None:
        pass

    async def restart(self, *given: object, **options: object) -> None:
        await self.start.wait()
        self.memory = memory()
        self.started.set()


def started() -> tuple[Engine, Workers, MagicMock, list[Ready]]:
    """Return an engine whose workers are up, its lifecycle of requests, and what the workers have told."""
    engine, workers, lifecycle = Engine(EngineConfig()), Workers(), MagicMock()
    lifecycle.blame.return_value = False
    lifecycle.go_on.return_value = set()
    table = SimpleNamespace(attempts=list, had_failed_step=lambda uid: True)
    engine._running = cast(
        Any, SimpleNamespace(workers=workers, lifecycle=lifecycle, table=table, messages=MagicMock())
    )
    ready = [Ready(instance.name, decode_step=0.001) for instance in engine.roles.placement.instances]
    engine._handle_all([*ready])
    assert engine.healthy
    return engine, workers, lifecycle, ready


async def turns() -> None:
    """Let all go on that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_worker_that_was_up_before_a_restart_does_not_count_as_up_after_it() -> None:
    engine, workers, _, (first, *others) = started()
    engine._worker_ended(others[-1].instance, DAMAGED_WEIGHTS, 0)
    engine._handle_all([first])  # which it sent before it was ended, too
    workers.start.set()
    await workers.started.wait()
    await asyncio.sleep(0)
    engine._handle_all([*others])
    assert not engine.healthy
    engine._handle_all([first])
    assert engine.healthy


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_was_lost_with_a_worker_goes_on_though_all_others_end_before_it_is_replaced(at_once: bool) -> None:
    engine, workers, lifecycle, ready = started()
    lost = Lost(ATTEMPT, MagicMock(), [0])
    lifecycle.lose.return_value = [lost]
    engine._worker_ended(ready[0].instance, 1, 0)
    if not at_once:
        await turns()
        assert isinstance(workers.sent[0], Forget)
    engine._worker_ended(ready[-1].instance, DAMAGED_WEIGHTS, 0)
    assert lifecycle.strand.call_args_list == [call([lost])]
    workers.start.set()
    await turns()
    engine._handle_all([*ready])
    await turns()
    assert engine.healthy
    assert lifecycle.workers_back.called
    assert [lost for each in lifecycle.strand.call_args_list[1:] for lost in each.args[0]] == []
    assert engine._recovery._tasks == set()


async def test_nobody_waits_for_counts_of_workers_that_are_all_replaced() -> None:
    engine, workers, _, ready = started()
    engine._handle_all([Drained(ATTEMPT)])  # after a failed step
    await turns()
    assert isinstance(workers.sent[0], Count)
    engine._worker_ended(ready[-1].instance, DAMAGED_WEIGHTS, 0)
    workers.start.set()
    await turns()
    engine._handle_all([*ready])
    await turns()
    assert engine._recovery._tasks == set()
