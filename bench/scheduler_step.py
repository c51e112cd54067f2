"""What a step's plan costs the host: the order of the queue and the policy, with many running and waiting requests.

Nothing is computed: the schedulers are pure. Half of those that wait are texts, the rest images and videos in all
states from still being decoded to partly prefilled; in every step some arrive, some are due and some get on.

    python bench/scheduler_step.py --json bench/results/scheduler-step.json --plot bench/results/scheduler-step.png
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from unifiedserve.config import Order, Stage
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling import Budget, DecodeState, PrefillState, Queue, State, Unit, policy_for

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
ENOUGH = 1 << 20  # pages


class Point(NamedTuple):
    """Microseconds a step, median and 95th percentile."""

    worker: str
    order: Order
    running: int
    waiting: int
    median: float
    p95: float


def prompt(uid: int, now: float) -> PrefillState:
    """Return a request: of six three are texts, one is an image, two are videos, one of them still in decoding."""
    kind = uid % 6
    units, tokens = {3: (1, 300), 4: (32, 60), 5: (240, 60)}.get(kind, (0, 0))
    made = [Unit(tokens, 20 + i * tokens, 4, ready=kind != 5) for i in range(units)]
    work = 0.001 * (120 + 3 * units * tokens)
    ticket = Ticket(uid, now, due=now + 5 * work, work=work)
    return PrefillState(ticket, 120 + units * tokens, 8 + units * tokens // 16, made)


def plans(worker: str, order: Order, running: int, waiting: int) -> Callable[[], float]:
    """Return what does a step over such a state, and says how many seconds its plan took."""
    budget = Budget(512, 512, running, 16, order=order, short_tokens=0 if order == "fcfs" else 1024)
    policy, queue = policy_for(WORKERS[worker]), Queue[PrefillState](order)
    for uid in range(waiting):
        queue.add(prompt(uid, uid * GAP / 10))
    decodes = [DecodeState(Ticket(-1 - uid, -1.0), 0, 500 + uid, 32 + uid // 16) for uid in range(running)]
    clock = [waiting * GAP / 10, waiting]

    def step() -> float:
        clock[0] += GAP
        begin = time.perf_counter()
        prefills = queue.in_turn(clock[0])
        plan = policy(State(prefills, decodes, ENOUGH, ENOUGH, ENOUGH, clock[0]), budget)
        seconds = time.perf_counter() - begin
        carry_out(plan.prefill, queue)
        while len(queue) < waiting:
            queue.add(prompt(int(clock[1]), clock[0]))
            clock[1] += 1
        return seconds

    return step


def carry_out(chunks: list[tuple[int, int, int]], queue: Queue[PrefillState]) -> None:
    """Let the prompts get on as planned; those at their ends leave."""
    stops = {uid: stop for uid, _, stop in chunks}
    for request in [request for request in queue if request.ticket.uid in stops]:
        request.admit()
        request.prefill(stops[request.ticket.uid])
        if request.prefilled == request.num_tokens:
            queue.remove(request)


def measure(worker: str, order: Order, running: int, waiting: int) -> Point:
    step = plans(worker, order, running, waiting)
    times = sorted(step() * 1e6 for _ in range(STEPS))
    return Point(worker, order, running, waiting, statistics.median(times), times[int(0.95 * STEPS)])


def show(console: Console, points: list[Point]) -> None:
    table = Table(title="microseconds a step: median (p95)")
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
    axes[0].set_ylabel("microseconds a step")
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
