"""Run a benchmark as it is asked for: one run, or runs at rate after rate."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec
from rich.console import Console
from rich.progress import Progress

from unifiedserve.bench.client.body import Bodies
from unifiedserve.bench.client.connection import connect
from unifiedserve.bench.client.conversation import Judge
from unifiedserve.bench.client.delivery import delivered
from unifiedserve.bench.client.target import find_target
from unifiedserve.bench.goodput.search import Found, Goal, search
from unifiedserve.bench.options import GoodputOptions, RunOptions
from unifiedserve.bench.records import Record, Run
from unifiedserve.bench.requests import Arrival, Request
from unifiedserve.bench.run.measure import STOPPED, measure, uncancel
from unifiedserve.bench.run.plan import Manner, Plan
from unifiedserve.bench.run.progress import Bar, shown
from unifiedserve.errors import ConfigError

_ALONE = 20  # requests that show whether targets can be held at all
RATE = "RATE"


class Parts(NamedTuple):
    """Hold what a benchmark is made of, besides the client."""

    requests: Callable[[RunOptions, int, int], Sequence[Request]]  # by options, seed and number, or fewer
    schedule: Callable[
        [str, Sequence[Request], int], tuple[list[Arrival], int]
    ]  # with the users of a closed loop, or 0
    judge: Callable[[RunOptions], Judge]
    attainment: Callable[[Sequence[Record]], float]


async def run_once(options: RunOptions, parts: Parts, console: Console) -> Run | None:
    """Return a run; None if the requests were to be written to a file only. Raises ConfigError for bad options."""
    async with connect(options.url, options.silence) as http:
        manner = await _manner(http, options)
        plan = _plan(options, parts, manner, options.arrivals, options.seed)
        if options.dump_requests:
            _dump(plan, manner, Path(options.dump_requests))
            return None
        with shown(console) as progress:
            return await _measure(http, plan, manner, parts.judge(options), progress)


async def find_goodput(options: GoodputOptions, parts: Parts, console: Console) -> tuple[Found, list[Run]]:
    """Return the goodput and all runs of the search; the first is that of requests that are alone.

    If these miss the goal, there is no point in a search. A later run that cannot begin, or Ctrl-C, ends it with what
    it has. Raises ConfigError for bad options.
    """
    if RATE not in options.arrivals:
        raise ConfigError(
            f"--arrivals: {options.arrivals!r} has no {RATE} in it to be searched for, as in poisson:{RATE}"
        )
    goal = Goal(attainment=options.goal, precision=options.precision, first=options.first_rate, repeats=options.repeats)
    runs: list[Run] = []
    async with connect(options.url, options.silence) as http:
        manner = await _manner(http, options)
        judge = parts.judge(options)
        with shown(console) as progress:

            async def probe(its: GoodputOptions, arrivals: str, seed: int) -> float | None:
                try:
                    run = await _measure(http, _plan(its, parts, manner, arrivals, seed), manner, judge, progress)
                except (ConfigError, asyncio.CancelledError) as error:
                    if not runs:
                        raise
                    _give_up(error, arrivals, progress.console)
                    return None
                runs.append(run)
                return None if run.interrupted else parts.attainment(run.records)

            few = msgspec.structs.replace(options, requests=min(_ALONE, options.requests))
            alone = await probe(few, "closed:1", options.seed)
            if alone is None or alone < goal.attainment:
                return Found(goal=goal, rate=None, too_high=None, probes=[], interrupted=alone is None), runs
            found = await search(
                lambda rate, seed: probe(options, options.arrivals.replace(RATE, f"{rate:g}"), seed),
                goal,
                options.seed,
            )
    return found, runs


def _give_up(error: BaseException, arrivals: str, console: Console) -> None:
    """Go on without a run that has not begun: say why, and forget that it was cancelled."""
    if isinstance(error, asyncio.CancelledError):
        uncancel()
    console.print(f"{arrivals}: {str(error) or STOPPED}", style="yellow", markup=False)


async def _manner(http: httpx.AsyncClient, options: RunOptions) -> Manner:
    target = await find_target(http, options.model, options.dialect)
    return Manner(url=options.url, target=target, wishes=options.wishes, delivery=options.media)


def _plan(options: RunOptions, parts: Parts, manner: Manner, arrivals: str, seed: int) -> Plan:
    """Draw the requests, and those for the warm-up after them."""
    drawn = parts.requests(options, seed, options.requests + options.warmup)
    counted = drawn[: options.requests]
    schedule, users = parts.schedule(arrivals, counted, seed)
    return Plan(
        name=options.name or manner.target.dialect.name,
        workload=options.dataset or options.workload,
        arrivals=arrivals,
        seed=seed,
        requests=schedule,
        users=users,
        warmup=drawn[options.requests :],
        seconds=inf if options.seconds is None else options.seconds,
    )


async def _measure(http: httpx.AsyncClient, plan: Plan, manner: Manner, judge: Judge, progress: Progress) -> Run:
    return await measure(http, plan, manner, judge=judge, bar=Bar(progress, plan.arrivals, plan.turns))


def _dump(plan: Plan, manner: Manner, path: Path) -> None:
    """Write a line for every turn: when it is due and its body, with empty answers to the turns before.

    No file is uploaded: those are in the bodies, too.
    """
    with delivered(manner.delivery, plan.paths, {}) as media:
        bodies = Bodies(manner.target.model, manner.target.dialect, media, manner.wishes)
        try:
            with path.open("wb") as file:
                for due, body in _turns(plan, bodies):
                    file.write(msgspec.json.encode({"due": due, "body": msgspec.Raw(body)}) + b"\n")
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def _turns(plan: Plan, bodies: Bodies) -> Iterator[tuple[float, bytes]]:
    for arrival in plan.due:
        for number in range(len(arrival.request.turns)):
            yield arrival.at, bodies.make(arrival.request.turns[: number + 1], [""] * number)
