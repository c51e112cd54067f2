"""Sums over ranks: shared memory beside gloo, and beside what it costs to copy the same bytes from another process.

Two processes, pinned to a core each, take turns with all three in one run.

    python bench/collectives.py --json bench/results/collectives.json
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import torch.distributed
import typer
from rich.console import Console
from rich.table import Table
from torch import multiprocessing

from ipc_buffers import Arena, Collective
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.memory.number_types import name_of

SIZES = (8 << 10, 64 << 10, 1 << 20)  # bytes
DTYPES = (torch.float32, torch.bfloat16)
ROUNDS = 20
REPEATS = {8 << 10: 200, 64 << 10: 50, 1 << 20: 20}  # in a round
MICROSECONDS = 1e6


class Rank:
    """One of the two processes, with its share of memory that both see."""

    def __init__(self, number: int, collective: str, arena: str) -> None:
        self.number = number
        self._collective = Collective.join(collective, number)
        both = torch.frombuffer(Arena.attach(arena).buffer(), dtype=torch.uint8).view(2, -1)
        self._own, self._other = both[number], both[1 - number]

    def measure(self, size: int, dtype: torch.dtype) -> dict[str, list[float]]:
        """Return the seconds that each way takes, again and again."""
        values = torch.randn(size // dtype.itemsize).to(dtype)
        buffer, name = values.view(torch.uint8).numpy(), name_of(dtype)
        target = torch.empty(size, dtype=torch.uint8)
        ways: dict[str, Callable[[], object]] = {
            "shared memory": lambda: self._collective.all_reduce(buffer, name),
            "gloo": lambda: torch.distributed.all_reduce(values),
            "copy from the other": lambda: target.copy_(self._other[:size]),
        }
        found: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, act in ways.items():
                found[way] += [self._timed(act, values) for _ in range(REPEATS[size] if way != "gloo" else 5)]
        return found

    def _timed(self, act: Callable[[], object], values: torch.Tensor) -> float:
        """Time one act that both begin at once, with values that each has just written."""
        values.fill_(1)
        self._own[: values.nbytes].fill_(1)
        self._collective.barrier()
        began = time.perf_counter()
        act()
        return time.perf_counter() - began


def work(number: int, collective: str, arena: str, store: str, answers: Any) -> None:
    """Be one of the processes."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[number]})
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=2)
    rank = Rank(number, collective, arena)
    for size in SIZES:
        for dtype in DTYPES:
            found = rank.measure(size, dtype)
            if number == 0:
                answers.put((size, name_of(dtype), found))
    torch.distributed.destroy_process_group()


def summary(seconds: list[float]) -> dict[str, float]:
    """Return the median and the quartiles, microseconds."""
    low, _, high = quantiles(seconds, n=4)
    return {"p50": median(seconds) * MICROSECONDS, "p25": low * MICROSECONDS, "p75": high * MICROSECONDS}


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table("bytes", "dtype", "shared memory, µs", "gloo, µs", "copy, µs", "gloo / shared", "copy / shared")
    for row in rows:
        shared, gloo, copy = (row[way]["p50"] for way in ("shared memory", "gloo", "copy from the other"))
        spread = f"{shared:.1f} ({row['shared memory']['p25']:.1f}–{row['shared memory']['p75']:.1f})"
        numbers = (spread, f"{gloo:.0f}", f"{copy:.1f}", f"{gloo / shared:.0f}", f"{copy / shared:.2f}")
        table.add_row(f"{row['bytes']:,}", row["dtype"], *numbers)
    console.print(table)


def main(
    json_file: Annotated[Path, typer.Option("--json", help="Where to save the figures")] = Path(
        "bench/results/collectives.json"
    ),
) -> None:
    """Measure sums over two ranks."""
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    collective, arena = (f"bench-{kind}-{os.getpid()}" for kind in ("collective", "arena"))
    made = [Collective.create(collective, 2), Arena.create(arena, 2 * max(SIZES))]
    try:
        with TemporaryDirectory() as folder:
            arguments = (collective, arena, f"{folder}/store", answers)
            ranks = [spawn.Process(target=work, args=(number, *arguments)) for number in range(2)]
            for each in ranks:
                each.start()
            found = [answers.get(timeout=120) for _ in range(len(SIZES) * len(DTYPES))]
            for each in ranks:
                each.join()
    finally:
        for each in made:
            each.unlink()
    rows = [
        {"bytes": size, "dtype": dtype, **{way: summary(times) for way, times in ways.items()}}
        for size, dtype, ways in found
    ]
    show(Console(), rows)
    command = " ".join(["python", *sys.argv])
    json_file.write_text(json.dumps({"command": command, "machine": describe_machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
