"""What a turn costs the host: noting what the last step gave and deciding the next, with many running and waiting.

Nothing is computed: turns are pure. Half of the requests that wait are texts, the rest images and videos in all states
from still being decoded to partly prefilled; in every step some arrive, some are due and some get on.

    python bench/scheduler_step.py --json bench/results/scheduler-step.json --plot bench/results/scheduler-step.png
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from unifiedserve.config import Order
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Stage
from unifiedserve.scheduling import Budget, DecodeState, Plan
from unifiedserve.scheduling.turn import (
    Batched,
    Begin,
    Encoded,
    Event,
    Facts,
    Free,
    Handed,
    Shape,
    Stepped,
    Streamed,
    Took,
    Turn,
    UnitShape,
    Wrote,
)

ORDERS: list[Order] = ["fcfs", "slack", "shortest"]
WAITING = [0, 100, 300, 1000, 3000]
RUNNING = [1, 64, 256]
WORKERS = {
    "encode+prefill": {Stage.ENCODE, Stage.PREFILL},
    "decode": {Stage.DECODE},
    "all three": {Stage.ENCODE, Stage.PREFILL, Stage.DECODE},
}
WITH_QUEUE = ["encode+prefill", "all three"]
STEPS = 200
GAP = 0.05  # seconds between steps
FREE = Free(1 << 20, 1 << 20)


class Point(NamedTuple):
    """Microseconds a turn, median and 95th percentile."""

    worker: str
    order: Order
    running: int
    waiting: int
    median: float
    p95: float


def prompt(uid: int, now: float) -> Begin:
    """Return a request: of six three are texts, one is an image, two are videos, one of them still in decoding."""
    kind = uid % 6
    units, tokens = {3: (1, 300), 4: (32, 60), 5: (240, 60)}.get(kind, (0, 0))
    shapes = [UnitShape(tokens, 20 + i * tokens, ready=kind != 5) for i in range(units)]
    work = 0.001 * (120 + 3 * units * tokens)
    ticket = Ticket(uid, now, due=now + 5 * work, work=work)
    return Begin(ticket, Shape(120 + units * tokens, 8 + units * tokens // 16, shapes))


def turns(worker: str, order: Order, running: int, waiting: int) -> Callable[[], float]:
    """Return what does a step with such requests, and says how many seconds its turn took."""
    budget = Budget(512, 512, running, 16, order=order, short_tokens=0 if order == "fcfs" else 1024)
    turn = Turn(WORKERS[worker], budget, rests=True)
    for uid in range(waiting):
        turn.note(prompt(uid, uid * GAP / 10))
    streams = [Streamed((-1 - uid, 0), 500 + uid, 32 + uid // 16) for uid in range(running)]
    for (uid, answer), tokens, pages, _ in streams if Stage.DECODE in WORKERS[worker] else ():
        turn.note(Handed(DecodeState(Ticket(uid, -1.0), answer, tokens, pages)))
    clock, uid, happened = waiting * GAP / 10, waiting, list[Event]()

    def step() -> float:
        nonlocal clock, uid
        clock += GAP
        begin = time.perf_counter()
        for event in happened:
            turn.note(event)
        plan = turn.take(Facts(clock, FREE)).plan
        seconds = time.perf_counter() - begin
        happened[:] = outcomes(plan, streams, clock)
        while turn.prompts < waiting:
            turn.note(prompt(uid, clock))
            uid += 1
        return seconds

    return step


def outcomes(plan: Plan, streams: list[Streamed], now: float) -> Iterator[Event]:
    """Yield what happens where all goes as planned; the streams never end, and grow no longer."""
    for chunk in plan.prefill:
        yield Took(chunk.uid)
    if plan.prefill or plan.decode:
        yield Stepped([now, now + GAP / 2], plan.prefill, plan.decode, streams if plan.decode else [], beside=False)
    for uid, units in plan.encode:
        for unit in units:
            yield Wrote(uid, unit)
            yield Encoded(uid, unit)
    if plan.encode:
        yield Batched(512, now + GAP / 2, now + GAP)


def measure(worker: str, order: Order, running: int, waiting: int) -> Point:
    step = turns(worker, order, running, waiting)
    times = sorted(step() * 1e6 for _ in range(STEPS))
    return Point(worker, order, running, waiting, statistics.median(times), times[int(0.95 * STEPS)])


def show(console: Console, points: list[Point]) -> None:
    table = Table(title="microseconds a turn: median (p95)")
    for column in ("worker", "running", "waiting", *ORDERS):
        table.add_column(column, justify="right")
    for worker, running, waiting in dict.fromkeys(point[:1] + point[2:4] for point in points):
        row = [p for p in points if (p.worker, p.running, p.waiting) == (worker, running, waiting)]
        table.add_row(worker, str(running), str(waiting), *(f"{p.median:.0f} ({p.p95:.0f})" for p in row))
    console.print(table)


def draw(path: Path, points: list[Point]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(WITH_QUEUE), figsize=(10, 4), sharey=True)
    for axis, worker in zip(axes, WITH_QUEUE, strict=True):
        for order in ORDERS:
            line = [p for p in points if p.worker == worker and p.order == order and p.running == RUNNING[-1]]
            axis.plot([p.waiting for p in line], [p.median for p in line], marker="o", label=order)
        axis.axhline(200, color="grey", linestyle=":", linewidth=1)
        axis.set_title(f"{worker}, {RUNNING[-1]} running")
        axis.set_xlabel("waiting requests")
        axis.set_xscale("symlog", linthresh=100)
        axis.set_xlim(-5, 1.2 * WAITING[-1])
        axis.set_yscale("log")
    axes[0].set_ylabel("microseconds a turn")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures here")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw them here")] = None,
) -> None:
    """Measure the schedulers."""
    cases = [(w, o, r, n) for w in WORKERS for r in RUNNING for n in WAITING for o in ORDERS if n == 0 or w != "decode"]
    points = [measure(*case) for case in track(cases, description="steps", console=Console(stderr=True))]
    show(Console(), points)
    if json_path:
        command = " ".join(["python", *sys.argv])
        found = {"command": command, "machine": describe_machine(), "points": [point._asdict() for point in points]}
        json_path.write_text(json.dumps(found, indent=1) + "\n")
    if plot:
        draw(plot, points)


if __name__ == "__main__":
    typer.run(main)
