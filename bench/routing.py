"""Who should take a request: the router's policies over simulated machines, on a bursty mix of all media.

Each machine is the simulator of one engine, with costs that were measured. The router sees their load as old as its
reports are, and of each request what FlashCodec's plan tells: how long its media take is known before it is sent. To
ask for that plan takes the time that a server needs to look at media, which the policies that need it are charged with.
Caches are not simulated. Pure: the same seed gives the same numbers on any machine.

    python bench/routing.py --machines 4 --rate 1.6 --json bench/results/routing.json
"""

import json
import statistics
import sys
import time
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from unifiedserve.bench.arrivals.processes import Gamma
from unifiedserve.bench.arrivals.seeds import stream
from unifiedserve.cluster.routing import Fleet, Policy, Request
from unifiedserve.config import EngineConfig
from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling import Work, budget_of
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Simulator, StageCosts
from unifiedserve.scheduling.targets import Targets

REPORT_SECONDS = 0.25  # between two reports of a machine
SHARES = {"text": 0.6, "image": 0.3, "video": 0.1}
IMAGE_TOKENS, UNIT_TOKENS = 256, 128  # of an image, and of two frames of a video
GOP_UNITS = 5
PATCHES_A_TOKEN, PATCH_PAGE_ROWS = 4, 64
FREE = FreePages(kv=1 << 14, visual=1 << 12, patch=1 << 12)
COSTS = Path(__file__).parent / "results" / "simulator-shared.json"
WARM_UP = 20  # first requests, which do not count


class Question(NamedTuple):
    """What is asked, and when (seconds): tokens of text and of each unit of its media, which take so long to decode."""

    due: float
    kind: str
    text: int
    units: list[int]
    generate: int
    decode: float = 0.0  # seconds of a core, for each unit
    gop: int = 0
    media: int = 0

    @property
    def work(self) -> Work:
        """What a router is told of it."""
        visual = sum(self.units)
        return Work(
            prompt_tokens=self.text + visual,
            visual_tokens=visual,
            video_seconds=self.decode * len(self.units),
        )

    def arrival(self, uid: int, at: float) -> Arrival:
        """Return it as it comes to a machine at a time."""
        gaps = [self.text // 2, *[0] * (len(self.units) - 1), self.text - self.text // 2] if self.units else [self.text]
        pages = -(-max(self.units, default=0) * PATCHES_A_TOKEN // PATCH_PAGE_ROWS)
        return Arrival(
            Ticket(uid, at), gaps, self.units, self.generate, self.decode, self.gop, max(1, pages), self.media
        )


class Answered(NamedTuple):
    """How long a question waited for its first token, and for its last (seconds)."""

    kind: str
    first: float
    last: float


def workload(rate: float, burstiness: float, count: int, costs: StageCosts, seed: int) -> list[Question]:
    """Return so many questions; how many images and how much of a video they have, is heavy-tailed, as in traces."""
    draw = stream(seed, "questions")
    times = Gamma(rate, burstiness).times(count, seed).tolist()
    kinds = draw.choice(list(SHARES), size=count, p=list(SHARES.values())).tolist()
    return [_question(due, kind, costs, draw) for due, kind in zip(times, kinds, strict=True)]


def _question(due: float, kind: str, costs: StageCosts, draw: np.random.Generator) -> Question:
    text, generate = int(np.clip(draw.lognormal(5.0, 0.8), 16, 2000)), int(np.clip(draw.lognormal(3.5, 0.7), 4, 200))
    if kind == "text":
        return Question(due, kind, text, [], generate)
    if kind == "image":
        images = int(min(1 + draw.pareto(1.5), 12))
        return Question(due, kind, text, [IMAGE_TOKENS] * images, generate, costs.image, media=images)
    seconds = float(np.clip(draw.lognormal(3.0, 1.0), 4, 240))
    units = int(np.clip(seconds / 2, 4, 48))
    decode = costs.video_second * seconds / units
    return Question(due, kind, text, [UNIT_TOKENS] * units, generate, decode, GOP_UNITS, 1)


class Machines:
    """Simulated engines by name, behind a router that chooses by a policy."""

    def __init__(self, count: int, policy: Policy, costs: StageCosts, cores: int) -> None:
        self._costs, self._plans = costs, policy is Policy.COST
        config = EngineConfig()
        budget = budget_of(config, FREE.kv, costs.lone_step)
        self._engines = {
            f"node-{number}": Simulator(
                config.machine.workers,
                budget,
                copy(FREE),
                [],
                costs,
                Cores(cores, costs.waste),
                targets=Targets(config),
            )
            for number in range(count)
        }
        self._fleet = Fleet(policy)
        self._reported = 0.0
        self._report()

    def serve(self, questions: Sequence[Question]) -> list[Answered]:
        """Return how long each question took, in their order."""
        for uid, question in enumerate(questions):
            at = question.due + self._planning(question)
            self._report_until(at)
            name = self._fleet.choose(Request(question.work))
            assert name is not None
            self._engines[name].submit(question.arrival(uid, at))
        for engine in self._engines.values():
            engine.run()
        tokens = {uid: times for engine in self._engines.values() for uid, times in engine.tokens.items()}
        return [
            Answered(question.kind, tokens[uid][0] - question.due, tokens[uid][-1] - question.due)
            for uid, question in enumerate(questions)
        ]

    def _planning(self, question: Question) -> float:
        return self._costs.intake + question.media * self._costs.medium if self._plans and question.media else 0.0

    def _report_until(self, time: float) -> None:
        """Let the machines come to the last report before a time, and tell the router."""
        last = time // REPORT_SECONDS * REPORT_SECONDS
        if last > self._reported:
            for engine in self._engines.values():
                engine.run(last)
            self._reported = last
            self._report()

    def _report(self) -> None:
        for name, engine in self._engines.items():
            self._fleet.update(name, engine.load)


def percentiles(answers: Sequence[Answered]) -> dict[str, float]:
    """Return figures of the first tokens in seconds."""
    first = [answer.first for answer in answers]
    return {
        "mean": statistics.fmean(first),
        "p50": float(np.quantile(first, 0.5)),
        "p99": float(np.quantile(first, 0.99)),
    }


def summary(by_policy: dict[Policy, list[Answered]]) -> dict[str, Any]:
    """Return the figures of each policy, of all requests and of each kind."""
    return {
        policy: {
            "all": percentiles(answers),
            **{kind: percentiles([answer for answer in answers if answer.kind == kind]) for kind in SHARES},
        }
        for policy, answers in by_policy.items()
    }


def table(found: dict[str, Any]) -> Table:
    """Return a row for each policy, and its 99th percentile as a part of the others'."""
    rows = Table("policy", "kind", "mean, s", "p50, s", "p99, s", "p99 by cost / it")
    for policy, kinds in found.items():
        for kind, figures in kinds.items():
            ratio = found[Policy.COST][kind]["p99"] / figures["p99"]
            rows.add_row(policy, kind, *[f"{figures[name]:.2f}" for name in ("mean", "p50", "p99")], f"{ratio:.2f}")
        rows.add_section()
    return rows


def main(
    machines: Annotated[int, typer.Option(min=1, help="How many there are")] = 4,
    cores: Annotated[int, typer.Option(min=1, help="Of each of them")] = 2,
    rate: Annotated[float, typer.Option(help="Requests a second, of all together")] = 1.6,
    burstiness: Annotated[float, typer.Option(help="Deviation of the gaps between requests, by their mean")] = 3.0,
    count: Annotated[int, typer.Option(min=WARM_UP + 1, help="Requests of each course")] = 1500,
    courses: Annotated[int, typer.Option(min=1, help="Each with a seed of its own")] = 3,
    first_seed: Annotated[int, typer.Option(help="The seed of the first course; the next one has the next")] = 0,
    costs_file: Annotated[Path, typer.Option("--costs", help="Results of bench/simulator.py")] = COSTS,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save the figures")] = None,
) -> None:
    """Compare the router's policies on simulated machines."""
    costs = msgspec.convert(json.loads(costs_file.read_text())["costs"][0], StageCosts)
    answers: dict[Policy, list[Answered]] = {policy: [] for policy in Policy}
    began = time.perf_counter()
    for seed in track(range(first_seed, first_seed + courses), "courses", transient=True):
        questions = workload(rate, burstiness, count, costs, seed)
        for policy in Policy:
            answers[policy] += Machines(machines, policy, costs, cores).serve(questions)[WARM_UP:]
    found = summary(answers)
    Console().print(table(found), f"simulated in {time.perf_counter() - began:.0f} s", sep="\n")
    if json_file is not None:
        asked = {"machines": machines, "cores": cores, "rate": rate, "burstiness": burstiness, "count": count}
        told = {"command": " ".join(["python", *sys.argv]), "asked": {**asked, "courses": courses}, "ttft": found}
        json_file.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
