"""Workers that live and do nothing are noticed and replaced; deaths count against what was worked on."""

import asyncio
import itertools
import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from completions import ask, tokens
from daemon import Daemon
from media import text_part

from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.suspects import Suspects
from unifiedserve.engine.silence import Silence, Vitals
from unifiedserve.engine.watchdog import Watchdog, processor_time
from unifiedserve.engine.workers import Workers

PATIENCE = 3


def looks_until_it_hangs(*signs: Vitals, most: int = 1000, trifle: int = 0) -> int | None:
    """How many looks it takes, the signs coming round and round."""
    silence = Silence(PATIENCE, trifle)
    for look in range(most):
        silence.look(signs[look % len(signs)])
        if silence.hangs:
            return look
    return None


def test_a_worker_that_waits_and_does_not_come_round_hangs_even_if_its_threads_compute() -> None:
    assert looks_until_it_hangs(Vitals(1, True, 5)) == PATIENCE
    assert looks_until_it_hangs(*(Vitals(1, True, computed) for computed in range(100))) == PATIENCE


def test_a_worker_that_comes_round_or_computes_does_not_hang() -> None:
    assert looks_until_it_hangs(*(Vitals(turn, True, 5) for turn in range(1000))) is None
    assert looks_until_it_hangs(*(Vitals(1, False, computed) for computed in range(100)), most=100) is None


def test_a_worker_that_stands_still_in_a_turn_hangs_as_soon_as_one_that_waits() -> None:
    assert looks_until_it_hangs(Vitals(1, False, 5)) == PATIENCE


def test_what_threads_beside_a_turn_compute_now_and_then_is_no_sign_of_life() -> None:
    signs = [Vitals(1, False, 5 * look) for look in range(1000)]
    assert looks_until_it_hangs(*signs, trifle=5) == PATIENCE
    assert looks_until_it_hangs(*signs, trifle=4, most=100) is None


def test_a_turn_has_an_end_even_if_it_computes() -> None:
    signs = [Vitals(1, False, computed) for computed in range(1000)]
    assert looks_until_it_hangs(*signs) == 40 * PATIENCE


@pytest.mark.daemon("workers that are stopped", worker_timeout=3.0)
@pytest.mark.parametrize("instance", [pytest.param("vision", marks=pytest.mark.long), "decode"])
def test_a_stopped_worker_is_replaced_and_requests_go_on(
    daemon: Daemon, instance: str, caplog: pytest.LogCaptureFixture
) -> None:
    chunks = iter(ask(daemon, text_part("Hello"), stream=True, max_tokens=200, extra_body={"ignore_eos": True}))
    next(chunks)
    stopped = daemon.engine.observation.worker_pids()[instance]
    os.kill(stopped, signal.SIGSTOP)
    daemon.wait_healthy(False)
    daemon.wait_healthy()
    assert daemon.engine.observation.worker_pids()[instance] != stopped
    assert len(list(chunks)) > 1
    assert f"worker {instance} (process {stopped}) has shown no sign of life" in caplog.text
    text = daemon.engine.metrics.text().decode()
    assert "unifiedserve:worker_hangs_total 0.0" not in text
    assert f'unifiedserve:worker_silent_seconds{{worker="{instance}"}}' in text
    assert tokens(daemon, text_part("Still there?"))
    daemon.wait_idle()


def test_a_process_computes_while_its_child_does() -> None:
    """As a worker does that waits for a compiler."""
    waiting = subprocess.Popen(["sh", "-c", "echo $$; while :; do :; done & wait"], stdout=subprocess.PIPE)
    try:
        assert waiting.stdout is not None
        waiting.stdout.readline()
        before = processor_time(waiting.pid)
        while processor_time(waiting.pid) < before + 20_000_000:
            os.sched_yield()
    finally:
        for process in [*psutil.Process(waiting.pid).children(), waiting]:
            process.kill()
        waiting.wait()


@pytest.mark.parametrize("up", [False, True], ids=["that start", "that may wait for it"])
async def test_of_workers_only_a_stopped_one_is_killed(up: bool) -> None:
    processes = {name: subprocess.Popen(["sleep", "infinity"]) for name in ("slow", "stopped")}
    killed: asyncio.Queue[str] = asyncio.Queue()
    try:
        processes["stopped"].send_signal(signal.SIGSTOP)
        later = itertools.chain([0, 1], itertools.repeat(2))  # what is stopped falls silent after what waits for it
        turns = {"slow": itertools.repeat(0), "stopped": later}
        pulses = SimpleNamespace(turns=lambda name: next(turns[name]), waits=lambda name: name == "slow")
        workers = SimpleNamespace(
            pids=lambda: {name: process.pid for name, process in processes.items()},
            kill=killed.put_nowait,
            memory=SimpleNamespace(pulses=pulses),
        )
        watchdog = Watchdog(0.1, cast(Workers, workers), up=lambda name: up, on_hang=lambda: None)
        assert [await killed.get() for _ in range(3)] == ["stopped"] * 3
        watchdog.close()
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


@pytest.mark.daemon("workers that are stopped", worker_timeout=3.0)
def test_workers_that_are_stopped_while_they_start_again_are_replaced(daemon: Daemon) -> None:
    before = set(daemon.engine.observation.worker_pids().values())
    os.kill(daemon.engine.observation.worker_pids()["vision"], signal.SIGKILL)
    while not (new := set(daemon.engine.observation.worker_pids().values()) - before):
        os.sched_yield()
    for pid in new:
        os.kill(pid, signal.SIGSTOP)
    daemon.wait_for(lambda: daemon.engine.healthy and not new & set(daemon.engine.observation.worker_pids().values()))
    assert tokens(daemon, text_part("Still there?"))
    daemon.wait_idle()


def requests(number: int) -> list[ActiveRequest]:
    return [cast(ActiveRequest, Counted()) for _ in range(number)]


class Counted(SimpleNamespace):
    crashes = 0
    crashes_alone = 0
    suspect_media = False
    __hash__: Any = object.__hash__
    __eq__: Any = object.__eq__


def test_who_waited_is_not_blamed_and_who_was_beside_a_culprit_is_let_go() -> None:
    suspects = Suspects()
    culprit, beside, waiting = requests(3)
    for _ in range(2):
        suspects.blame({culprit, beside})
    assert [suspects.may_go(each) for each in (beside, culprit, waiting)] == [True, False, True]
    suspects.end(beside)
    assert suspects.next() is culprit
    suspects.blame({culprit, waiting})
    assert [suspects.convicted(each) for each in (culprit, beside, waiting)] == [True, False, False]
    assert waiting.crashes == 0


def test_a_held_request_that_ends_is_not_sent_on() -> None:
    suspects = Suspects()
    first, second = requests(2)
    for _ in range(2):
        suspects.blame({first, second})
    assert [suspects.may_go(first), suspects.may_go(second)] == [True, False]
    suspects.end(second)
    suspects.end(first)
    assert suspects.next() is None
