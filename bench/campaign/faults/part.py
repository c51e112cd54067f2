"""The campaign's faults: an engine of each placement in turn, in this process, with its part of the cases."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import psutil

from bench.campaign.cases import Outcome, ViolationError
from bench.campaign.faults.kinds import workers_with_faults
from bench.campaign.faults.trial import NAME, Case, Seen, Trial, case, engine, expected
from bench.campaign.travel import Answers
from ipc_buffers import list_arenas
from unifiedserve.engine.engine import Engine
from unifiedserve.memory.integrity import PoolError

_STREAMS = 2
_STREAM_TOKENS = 400
_IDLE_SECONDS = 1.0  # after which no page may be held
_END_SECONDS = 10.0  # in which processes must have ended with their engine


class Group(NamedTuple):
    """A placement, and the MiB of each KV cache: with few, requests wait and are preempted."""

    placement: str
    kv_cache_mib: int = 16
    patch_buffer_mib: int = 2  # a video must fit where there are several encoders or memories

    @property
    def name(self) -> str:
        """As reports have it."""
        return f"{self.placement}, {self.kv_cache_mib} MiB"


GROUPS = (
    Group("shared"),
    Group("2e+2p@mem1+2d@mem2", patch_buffer_mib=4),
    Group("monolithic"),
    Group("shared", 4),
    Group("split"),
    Group("e+p@mem1+d@mem2", patch_buffer_mib=4),
    Group("ed-p"),
    Group("2v+2e+2p+2d", patch_buffer_mib=4),
    Group("one"),
    Group("ep+d@mem1", 4, 4),
    Group("v+e+p+d"),
)


class Found:
    """What came of the faults, and what no single one found."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.outcomes: list[Outcome] = []
        self.findings: list[tuple[str, str]] = []


async def run(indices: Iterable[int], seed: int, on_case: Callable[[], None]) -> Found:
    """Try the cases of these numbers; `on_case` hears of each."""
    found, own = Found(), list(indices)
    with workers_with_faults():
        async with engine(*GROUPS[0]) as undisturbed:
            right = await expected(undisturbed, _STREAM_TOKENS)
        for number, group in enumerate(GROUPS):
            cases = [case(seed, index) for index in own if index % len(GROUPS) == number]
            while cases:
                cases = await _try(group, cases, right, found, on_case)
    return found


async def _try(
    group: Group,
    cases: Sequence[Case],
    right: Sequence[Answers],
    found: Found,
    on_case: Callable[[], None],
) -> list[Case]:
    """Try cases in an engine of their own, and return those that are left when it has ended with one."""
    processes, arenas = _processes(), {arena.name for arena in list_arenas()}
    left = list(cases)
    async with engine(*group) as own:
        trial = Trial(own, right, _STREAMS, _STREAM_TOKENS)
        while left:
            found.outcomes.append(await _outcome(own, trial, left.pop(0), group, found))
            on_case()
            if not own.healthy:
                break
    found.findings += await _left_behind(processes, arenas)
    return left


async def _outcome(own: Engine, trial: Trial, case: Case, group: Group, found: Found) -> Outcome:
    began, status, violation = time.monotonic(), "", ""
    try:
        seen = await trial.run(case)
    except (ViolationError, PoolError) as error:
        violation = str(error)
    except Exception as error:
        violation = f"{type(error).__name__}: {error}"
    else:
        found.seen.append(seen)
        status = "replaced" if seen.replaced else "went on" if own.healthy else "ended"
        if seen.drained > _IDLE_SECONDS:
            violation = f"pages were in use for {seen.drained:.1f} s"
    kind = f"{case.fault.name} of {case.stage.value}" + (", another dies, too" if case.again else "")
    return Outcome(NAME, case.index, kind, began, time.monotonic(), status, group.name, violation)


async def _left_behind(processes: set[psutil.Process], arenas: set[str]) -> list[tuple[str, str]]:
    """Return what an engine has left behind that is none of these."""
    findings = []
    end = time.monotonic() + _END_SECONDS
    while (more := _processes() - processes) and time.monotonic() < end:
        await asyncio.sleep(0.05)
    if more:
        findings.append(("processes", f"{len(more)} left: {[each.pid for each in more][:3]}"))
    if left := [each.name for each in list_arenas() if each.name not in arenas and f"{os.getpid()}-" in each.name]:
        findings.append(("shared memory", f"{len(left)} segments left: {left[:3]}"))
    return findings


def _processes() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))
