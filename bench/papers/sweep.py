"""An experiment's runs: each server is started alone on the machine, and gets the same requests at the same times."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec
from experiment import FOLDER, Experiment
from rich.console import Console

from unifiedserve.bench.arrivals.parse import parse
from unifiedserve.bench.arrivals.processes import ClosedLoop
from unifiedserve.bench.arrivals.schedule import schedule
from unifiedserve.bench.client.body import Wishes
from unifiedserve.bench.client.target import find_target
from unifiedserve.bench.records import Record, Run
from unifiedserve.bench.requests import Arrival, Request
from unifiedserve.bench.run.measure import measure
from unifiedserve.bench.run.plan import Manner, Plan
from unifiedserve.bench.run.progress import Bar, shown
from unifiedserve.bench.slo import Slo, isolated_slo

sys.path.append(str(FOLDER.parent / "serve_cpu"))

import servers  # type: ignore[import-not-found]
from contestants import OURS, Contestant  # type: ignore[import-not-found]

ALONE = 3  # requests of each kind that are measured alone
SILENCE = 600.0  # seconds without a byte after which a server has failed


@dataclass(frozen=True)
class Machine:
    """Where servers come from and what they may use."""

    model: Path
    media: Path
    vllm: Path
    logs: Path

    def server(self, contestant: Contestant) -> servers.Server:
        """Return a contestant's server. Raises StartError if it is not installed."""
        if contestant.kind in OURS:
            return servers.ours(contestant, self.model, self.media, [])
        return servers.vllm(contestant, self.model, self.media, self.vllm)


@dataclass(frozen=True)
class Sweep:
    """What every server is asked: the requests, at one arrival process after another.

    Videos are sampled to `frames` of at most `frame_pixels`.
    """

    name: str
    requests: Sequence[Request]
    arrivals: Sequence[str]
    seed: int
    frames: int
    frame_pixels: int

    def plans(self, server: str) -> Iterator[Plan]:
        """Yield the plan of each run with a server."""
        for arrivals in self.arrivals:
            process = parse(arrivals)
            yield Plan(
                name=server,
                workload=self.name,
                arrivals=arrivals,
                seed=self.seed,
                requests=schedule(process, self.requests, self.seed),
                users=process.users if isinstance(process, ClosedLoop) else 0,
            )

    def alone(self, server: str) -> Plan:
        """Return the plan of a run of a few requests of each kind, one after another; the first of each warm up."""
        kinds: dict[str, list[Request]] = {request.kind: [] for request in self.requests}
        for request in self.requests:
            kinds[request.kind].append(request)
        few = [request for some in kinds.values() for request in some[:ALONE]]
        return Plan(
            name=server,
            workload=self.name,
            arrivals="closed:1",
            seed=self.seed,
            requests=[Arrival(0.0, request) for request in few],
            users=1,
            warmup=[some[0] for some in kinds.values()],
        )


@dataclass
class Results:
    """All runs, what the first server needs for requests that are alone, and why servers are not there."""

    runs: list[Run] = field(default_factory=list)
    isolated: list[Record] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)


def run(
    machine: Machine, sweep: Sweep, compared: Sequence[Contestant], rounds: int, results: Results, console: Console
) -> None:
    """Add all rounds to the results. A server that does not start is told of and not tried again."""
    for number in range(1, rounds + 1):
        for place, one in enumerate(compared, 1):
            if one.name in results.absent:
                continue
            log = machine.logs / f"{place}-{one.kind}-{number}.log"
            try:
                with servers.running(machine.server(one), log) as (url, _):
                    asyncio.run(ask(url, sweep, one.title, results, console))
            except servers.StartError as error:
                results.absent[one.name] = str(error)
                console.print(f"{one.title}: {error}; its log, if there is one: {log}", highlight=False)


async def ask(url: str, sweep: Sweep, title: str, results: Results, console: Console) -> None:
    """Add a server's runs to the results, after one that warms it up; what ends a run early ends them all."""
    timeout = httpx.Timeout(None, connect=30.0, read=SILENCE)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=f"{url}/", timeout=timeout, limits=limits) as http:
        wishes = Wishes(video={"frames": sweep.frames, "frame_pixels": sweep.frame_pixels})
        manner = Manner(url=url, target=await find_target(http), wishes=wishes, delivery="file")
        with shown(console) as progress:
            for plan in (sweep.alone(title), *sweep.plans(title)):
                run = await measure(http, plan, manner, bar=Bar(progress, f"{title}, {plan.arrivals}", plan.turns))
                if plan.warmup:
                    results.isolated = results.isolated or run.records
                else:
                    results.runs.append(run)
                if run.interrupted:
                    return


def targets(experiment: Experiment, isolated: Sequence[Record]) -> Slo:
    """Return the SLOs: an experiment's multiples of what requests take alone."""
    alone = isolated_slo(isolated)
    tbt = None if alone.tbt is None else experiment.slo.tbt * alone.tbt
    return msgspec.structs.replace(alone.scaled(experiment.slo.ttft), tbt=tbt)
