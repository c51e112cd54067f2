"""The simulator beside a daemon: the same questions at the same times, and how far its latencies are from real ones.

Texts, images and videos come as a Poisson process, in several courses. What the stages cost is measured before and
after each of them as stage_costs.py does, on a second daemon, for a machine that others share changes its speed within
minutes. Ratios are simulated by real; caches and drafts are off, as they are
not simulated.

    python bench/simulator.py CHECKPOINT --courses 3 --seconds 60 --rate 0.3
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx
import msgspec
import typer
from latencies import KINDS, Answer, compare
from pull_costs import page_bytes, pull_costs
from rich.console import Console
from rich.progress import Progress
from serve_cpu import checkpoint, footage
from serve_cpu.prompts import Prompts
from stage_costs import FRAMES, MEDIA, VIDEO_SECONDS, measured
from streams import NO_CACHES, serving

from unifiedserve.config import EngineConfig
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Placement, Stage
from unifiedserve.profiling.asking import Asked, Asker, Work
from unifiedserve.profiling.subject import encoder_layers
from unifiedserve.scheduling import budget_of
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Simulator, StageCosts
from unifiedserve.scheduling.targets import Targets

PATCHES_A_TOKEN = 4
UNIT_FRAMES = 2  # frames of a video that make an encode unit
AROUND = 2  # tokens around a medium's
WARM_UP_SECONDS = 100.0  # simulated, for each request before the first one that counts
SHARES = dict(zip(KINDS, (6, 3, 1), strict=True))
KV_CACHE_MIB = "1024"  # of each daemon


class Question(NamedTuple):
    """What is asked, and when (seconds after the start)."""

    due: float
    kind: str
    work: Work


def workload(found: footage.Media, rate: float, seconds: float, seed: int) -> list[Question]:
    """Return the questions of a course."""
    choose = random.Random(seed)
    made: dict[str, Callable[[], Work]] = {
        "text": lambda: Work(choose.randint(60, 400), choose.randint(16, 64)),
        "image": lambda: Work(choose.randint(60, 100), 24, choose.choice(found.images)),
        "video": lambda: Work(choose.randint(60, 100), 24, choose.choice(found.videos), FRAMES),
    }
    questions, now = [], choose.expovariate(rate)
    while now < seconds:
        kind = choose.choices(list(SHARES), list(SHARES.values()))[0]
        questions.append(Question(now, kind, made[kind]()))
        now += choose.expovariate(rate)
    return questions


async def serve(asker: Asker, questions: Sequence[Question]) -> tuple[list[Answer], list[Asked]]:
    """Ask the daemon; return the answers, and what was asked."""
    start = time.monotonic()

    async def ask(question: Question) -> Asked:
        await asyncio.sleep(start + question.due - time.monotonic())
        return await asker.ask(question.work)

    asked = await asyncio.gather(*map(ask, questions))
    pairs = zip(questions, asked, strict=True)
    return [Answer(each.kind, each.due, [token - start for token in real.tokens]) for each, real in pairs], asked


class Model:
    """The simulated engine: its configuration, its pages, and what it was asked to warm up."""

    def __init__(self, config: EngineConfig, free: FreePages, before: Sequence[Work], asked: Sequence[Asked]) -> None:
        self._config = config
        self._free = free
        self._before = list(zip(before, asked, strict=True))

    def simulate(self, questions: Sequence[Question], asked: Sequence[Asked], costs: StageCosts) -> list[Answer]:
        """Simulate a course: first what warms up, from which the engine learns what work costs."""
        start = WARM_UP_SECONDS * len(self._before)
        first = [(WARM_UP_SECONDS * number, *both) for number, both in enumerate(self._before)]
        then = [(start + each.due, each.work, real) for each, real in zip(questions, asked, strict=True)]
        arrivals = [
            arrival(uid, due, work, real, self._config, costs) for uid, (due, work, real) in enumerate([*first, *then])
        ]
        sharing = Cores(len(os.sched_getaffinity(0)), costs.waste)
        budget, targets = budget_of(self._config, self._free.kv, costs.lone_step), Targets(self._config)
        simulator = Simulator(
            self._config.machine.workers, budget, copy(self._free), arrivals, costs, sharing, targets=targets
        )
        simulator.run()
        return [
            Answer(each.kind, each.due, [token - start for token in simulator.tokens[uid]])
            for uid, each in enumerate(questions, start=len(first))
        ]


def arrival(uid: int, due: float, work: Work, asked: Asked, config: EngineConfig, costs: StageCosts) -> Arrival:
    """Return a question in numbers; how many tokens its medium has, its real answer tells."""
    ticket, units = Ticket(uid, due), units_of(work)
    if not units:
        return Arrival(ticket, [asked.prompt_tokens], [], work.generate)
    tokens = visual_tokens(work, asked)
    around = asked.prompt_tokens - units * tokens
    decode = costs.video(VIDEO_SECONDS, work.frames) / units if work.frames else costs.image
    return Arrival(
        ticket,
        [around // 2, *[0] * (units - 1), around - around // 2],
        [tokens] * units,
        work.generate,
        decode,
        gop=max(1, round(units * costs.gop_seconds / VIDEO_SECONDS)) if work.frames else 0,
        patch_pages=-(-tokens * PATCHES_A_TOKEN // config.memory.patch_page_rows),
        media=1,
    )


def units_of(work: Work) -> int:
    """Return the encode units of a question."""
    return work.frames // UNIT_FRAMES or int(work.medium is not None)


def visual_tokens(work: Work, asked: Asked) -> int:
    """Return the visual tokens of each unit of a question whose text has an exact length."""
    return (asked.prompt_tokens - work.text - AROUND) // units_of(work)


def warm_up(image: Path, video: Path) -> list[Work]:
    """Return what a daemon is asked before it is measured."""
    return [Work(64, 8), Work(64, 8, image), Work(64, 2, video, FRAMES)]


def mean_costs(before: StageCosts, after: StageCosts, lone_step: float, layers: int) -> StageCosts:
    """Return the costs between two measurements, for a daemon that has measured its `lone_step` itself."""
    means = {name: (getattr(before, name) + getattr(after, name)) / 2 for name in StageCosts.__struct_fields__}
    return StageCosts(**means | {"lone_step": lone_step, "encoder_layers": layers})


def on_all_cores(costs: StageCosts, placement: Placement, cores: int) -> StageCosts:
    """Return what stages cost on all cores, from what they were measured to cost on those of their instances."""

    def scaled(stage: Stage, *names: str) -> dict[str, float]:
        host = next(each for each in placement.instances if stage in each.stages)
        return {name: getattr(costs, name) * host.threads(cores) / cores for name in names}

    return msgspec.structs.replace(
        costs,
        **scaled(Stage.DECODE, "decode_pass", "sequence", "context_token"),
        **scaled(Stage.PREFILL, "prefill_pass", "prompt_token", "prompt_context"),
        **scaled(Stage.ENCODE, "encode_batch", "visual_token"),
    )


async def pages(asker: Asker) -> FreePages:
    gauge = 'buffer_total_pages{{buffer="{}",memory="mem0"}}'
    return FreePages(*[int(await asker.gauge(gauge.format(name))) for name in ("kv", "visual", "patch")])


class Courses(NamedTuple):
    """All answers of all courses, the costs measured around them, and the seconds that simulating them took."""

    real: list[Answer]
    simulated: list[Answer]
    costs: list[StageCosts]
    took: float
    simulated_seconds: float


async def run(
    url: str,
    calibrating: str,
    model: Path,
    found: footage.Media,
    config: EngineConfig,
    courses: list[list[Question]],
    pulls: dict[str, float],
) -> Courses:
    """Measure the costs and serve a course in turn; then simulate the courses."""
    before = warm_up(found.images[0], found.videos[0])
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as http:
        with Progress(transient=True) as progress:
            task = progress.add_task("courses", total=2 * len(courses) + 1)

            async def calibrate() -> StageCosts:
                costs = await measured(calibrating, model, found, 1, lambda _: None)
                progress.advance(task)
                return msgspec.structs.replace(costs, **pulls)

            asker = Asker(http, Prompts(model).text)
            engine = Model(config, await pages(asker), before, [await asker.ask(work) for work in before])
            lone_step = await asker.gauge("slo_tbt_seconds") / config.scheduling.seconds_between_tokens(1.0)
            costs, served = [await calibrate()], []
            for questions in courses:
                served.append(await serve(asker, questions))
                progress.advance(task)
                costs.append(await calibrate())
    layers, simulated, begin = encoder_layers(model), [], time.perf_counter()
    for number, (questions, (_, asked)) in enumerate(zip(courses, served, strict=True)):
        between = mean_costs(*costs[number : number + 2], lone_step, layers)
        between = on_all_cores(between, config.machine.workers, len(os.sched_getaffinity(0)))
        simulated.append(engine.simulate(questions, asked, between))
    took = time.perf_counter() - begin
    return Courses(
        [answer for answers, _ in served for answer in answers],
        [answer for answers in simulated for answer in answers],
        costs,
        took,
        sum(max(answer.tokens[-1] for answer in answers) for answers in simulated),
    )


def saved(command: list[str], result: Courses, ratios: dict[str, Any]) -> str:
    """Return the JSON of all times and costs."""
    return json.dumps(
        {
            "command": " ".join(["python", *command]),
            "machine": describe_machine(),
            "ratios": ratios,
            "times_real_time": result.simulated_seconds / result.took,
            "costs": [msgspec.to_builtins(costs) for costs in result.costs],
            "real": [vars(answer) for answer in result.real],
            "simulated": [vars(answer) for answer in result.simulated],
        }
    )


def main(
    model: Annotated[Path, typer.Argument(help="Checkpoint")] = checkpoint.DEFAULT_FOLDER,
    placement: Annotated[str, typer.Option(help="A placement, as of the daemon")] = "shared",
    order: Annotated[str, typer.Option(help="slack, shortest or fcfs")] = "slack",
    courses: Annotated[int, typer.Option(min=1, help="Each beside costs of its own")] = 3,
    rate: Annotated[float, typer.Option(help="Requests a second")] = 0.3,
    seconds: Annotated[float, typer.Option(help="In which they come, of each course")] = 60.0,
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
    found = footage.ensure(media_folder, console, quick=False)
    asked = [workload(found, rate, seconds, seed + number) for number in range(courses)]
    config = EngineConfig.of(placement=placement, order=order)
    options = (*NO_CACHES, "--speculative-tokens", "0", "--kv-cache-mib", KV_CACHE_MIB)
    with (
        serving(model, media_folder, *options, "--no-overlap", "--placement", placement) as other,
        serving(model, media_folder, *options, "--order", order, "--placement", placement) as daemon,
    ):
        travels = len(config.machine.workers.memories) > 1
        pulls = pull_costs("shared", page_bytes(daemon.process.pid)) if travels else {}
        result = asyncio.run(run(daemon.url, other.url, model, found, config, asked, pulls))
    ratios = compare(console, result.real, result.simulated, (ttft, tbt))
    console.print(
        f"simulated in {result.took:.3f} s: {result.simulated_seconds / result.took:.0f} times real time",
        highlight=False,
    )
    json_file.write_text(saved(sys.argv, result, ratios) + "\n")


if __name__ == "__main__":
    typer.run(main)
