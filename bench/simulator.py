"""The simulator beside a daemon: the same questions at the same times, and how far its latencies are from real ones.

Texts, images and videos come as a Poisson process. What the stages cost has been measured on this machine by
stage_costs.py. Ratios are simulated by real; caches are off, as they are not simulated.

    python bench/simulator.py CHECKPOINT --seconds 60 --rate 0.5 --costs bench/results/stage-costs.json
"""

import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import httpx
import typer
from asking import Asked, Asker, Work, visual_tokens
from rich.console import Console
from rich.table import Table
from serve_cpu import checkpoint, footage
from serve_cpu.prompts import Prompts
from stage_costs import FRAMES, MEDIA, VIDEO_SECONDS, warm_up
from streams import NO_CACHES, serving

from unifiedserve.config import EngineConfig
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.errors import ConfigError
from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling import budget_of
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Simulator, StageCosts
from unifiedserve.scheduling.targets import Targets

GOP_SECONDS = 10  # of the videos
PATCHES_A_TOKEN = 4
WARM_UP_SECONDS = 100.0  # simulated, for each request before the first one that counts
SHARES = {"text": 6, "image": 3, "video": 1}
FIGURES = ("TTFT p50", "TTFT p99", "TBT p50", "TBT p99", "attainment")


@dataclass
class Answer:
    """When a request was due and its tokens came, in seconds after the start."""

    kind: str
    due: float
    tokens: list[float] = field(default_factory=list)

    @property
    def ttft(self) -> float:
        return self.tokens[0] - self.due

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in pairwise(self.tokens)]

    def meets(self, ttft: float, tbt: float) -> bool:
        """Tell whether the first token comes in time, and 90 % of the others do."""
        gaps = self.gaps
        return self.ttft <= ttft and sum(gap <= tbt for gap in gaps) >= 0.9 * len(gaps)


def workload(found: footage.Media, rate: float, seconds: float, seed: int) -> list[tuple[float, str, Work]]:
    """Return what is asked, and when (seconds after the start)."""
    choose = random.Random(seed)
    made: dict[str, Callable[[], Work]] = {
        "text": lambda: Work(choose.randint(60, 400), choose.randint(16, 64)),
        "image": lambda: Work(choose.randint(60, 100), 24, choose.choice(found.images)),
        "video": lambda: Work(choose.randint(60, 100), 24, choose.choice(found.videos), FRAMES),
    }
    work, now = [], choose.expovariate(rate)
    while now < seconds:
        kind = choose.choices(list(SHARES), list(SHARES.values()))[0]
        work.append((now, kind, made[kind]()))
        now += choose.expovariate(rate)
    return work


async def serve(
    url: str, model: Path, work: Sequence[tuple[float, str, Work]], before: Sequence[Work]
) -> tuple[list[Answer], list[Asked], FreePages]:
    """Ask the daemon; return the answers, and what was asked, with what was asked `before` at first."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as http:
        asker = Asker(http, Prompts(model))
        warm = [await asker.ask(each) for each in before]
        totals = [
            int(await asker.gauge(f'buffer_total_pages{{buffer="{name}"}}')) for name in ("kv", "visual", "patch")
        ]
        start = time.monotonic()

        async def ask(due: float, each: Work) -> Asked:
            await asyncio.sleep(start + due - time.monotonic())
            return await asker.ask(each)

        asked = await asyncio.gather(*(ask(due, each) for due, _, each in work))
    answers = [
        Answer(kind, due, [token - start for token in each.tokens])
        for (due, kind, _), each in zip(work, asked, strict=True)
    ]
    return answers, warm + asked, FreePages(*totals)


def simulate(
    work: Sequence[tuple[float, str, Work]],
    before: Sequence[Work],
    asked: Sequence[Asked],
    free: FreePages,
    config: EngineConfig,
    costs: StageCosts,
) -> list[Answer]:
    """Simulate the same: first what was asked `before`, from which the engine learns what work costs."""
    start = WARM_UP_SECONDS * len(before)
    dues = [WARM_UP_SECONDS * number for number in range(len(before))] + [start + due for due, _, _ in work]
    works = [*before, *(each for _, _, each in work)]
    arrivals = [
        arrival(uid, due, each, real, config, costs)
        for uid, (due, each, real) in enumerate(zip(dues, works, asked, strict=True))
    ]
    budget, sharing = budget_of(config, free.kv, costs.lone_step), Cores(len(os.sched_getaffinity(0)), costs.waste)
    simulator = Simulator(config.workers, budget, free, arrivals, costs, sharing, targets=Targets(config))
    simulator.run()
    tokens = simulator.tokens
    return [
        Answer(kind, due, [token - start for token in tokens[uid]])
        for uid, (due, kind, _) in enumerate(work, start=len(before))
    ]


def arrival(uid: int, due: float, work: Work, asked: Asked, config: EngineConfig, costs: StageCosts) -> Arrival:
    """Return a question in numbers; how many tokens its medium has, its real answer tells."""
    ticket, units = Ticket(uid, due), work.units
    if not units:
        return Arrival(ticket, [asked.prompt_tokens], [], work.generate)
    tokens = visual_tokens(work, asked)
    around = asked.prompt_tokens - units * tokens
    decode = costs.video_second * VIDEO_SECONDS / units if work.frames else costs.image
    return Arrival(
        ticket,
        [around // 2, *[0] * (units - 1), around - around // 2],
        [tokens] * units,
        work.generate,
        decode,
        gop=max(1, units * GOP_SECONDS // VIDEO_SECONDS) if work.frames else 0,
        patch_pages=-(-tokens * PATCHES_A_TOKEN // config.patch_page_rows),
        media=1,
    )


def figures(answers: Sequence[Answer], ttft: float, tbt: float) -> dict[str, float]:
    """Return the latencies (seconds) and the share of the requests that meet the targets."""
    ttfts, gaps = [answer.ttft for answer in answers], [gap for answer in answers for gap in answer.gaps]
    met = statistics.mean(answer.meets(ttft, tbt) for answer in answers)
    return dict(zip(FIGURES, (*_quantiles(ttfts), *_quantiles(gaps), met), strict=True))


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def compare(
    console: Console, real: Sequence[Answer], simulated: Sequence[Answer], targets: tuple[float, float]
) -> None:
    """Show the figures of each kind of request."""
    table = Table("", "", *FIGURES, title="Simulated by real")
    for kind in ("all", *SHARES):
        both = [[a for a in answers if kind in ("all", a.kind)] for answers in (real, simulated)]
        if not both[0]:
            continue
        rows = [figures(answers, *targets) for answers in both]
        for name, row in zip(("real", "simulated"), rows, strict=True):
            table.add_row(kind, name, *(f"{row[figure]:.3f}" for figure in FIGURES))
        table.add_row("", "ratio", *(f"{rows[1][f] / rows[0][f]:.2f}" if rows[0][f] else "-" for f in FIGURES))
    console.print(table)


def main(
    model: Annotated[Path, typer.Argument(help="Checkpoint")] = checkpoint.DEFAULT_FOLDER,
    costs_file: Annotated[Path, typer.Option("--costs", help="Of stage_costs.py")] = Path(
        "bench/results/stage-costs.json"
    ),
    placement: Annotated[str, typer.Option(help="shared or monolithic")] = "shared",
    rate: Annotated[float, typer.Option(help="Requests a second")] = 0.5,
    seconds: Annotated[float, typer.Option(help="In which they come")] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the requests")] = 0,
    ttft: Annotated[float, typer.Option(help="Target, seconds")] = 5.0,
    tbt: Annotated[float, typer.Option(help="Target, seconds")] = 0.2,
    media_folder: Annotated[Path, typer.Option("--media", help="Where the videos are, or are made")] = MEDIA,
    json_file: Annotated[Path, typer.Option("--json", help="Where to save all times")] = Path(
        "bench/results/simulator.json"
    ),
) -> None:
    """Ask a daemon and the simulator the same questions."""
    console = Console()
    try:
        costs = StageCosts.load(costs_file)
    except ConfigError as error:
        sys.exit(f"{error}: python bench/stage_costs.py {model} --placement {placement} --json {costs_file}")
    found = footage.ensure(media_folder, console, quick=False)
    work, before = workload(found, rate, seconds, seed), warm_up(found.images[0], found.videos[0])
    config = EngineConfig(placement=placement)  # type: ignore[arg-type]
    with serving(model, media_folder, *NO_CACHES, "--placement", placement) as daemon:
        real, asked, free = asyncio.run(serve(daemon.url, model, work, before))
    begin = time.perf_counter()
    simulated = simulate(work, before, asked, free, config, costs)
    took = time.perf_counter() - begin
    compare(console, real, simulated, (ttft, tbt))
    console.print(f"simulated in {took:.3f} s: {max(a.tokens[-1] for a in simulated) / took:.0f} times real time")
    runs = {name: [vars(answer) for answer in answers] for name, answers in (("real", real), ("simulated", simulated))}
    result = {"command": " ".join(["python", *sys.argv]), "machine": describe_machine(), **runs}
    json_file.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    typer.run(main)
