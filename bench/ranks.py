"""Decode over two ranks, each on a core of its own, beside one process with two threads on the same cores.

A third way is a single rank with two threads, which does all that ranks do but wait for others. The processes live side
by side and take turns in one run. What is timed is a step of decode: embedding, layers and logits of a batch, and the
tokens that come next. A ratio is the median of those of steps with the same number, of which all ways do one in a row.

    python bench/ranks.py MODEL --json bench/results/ranks.json
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import torch
import typer
from language_step import DecodeStep
from rich.console import Console
from torch import multiprocessing

from ipc_buffers import Collective, Memory, MessageQueue, PagePool
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Meeting
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.engine.weight_source import wanted_by, weight_source
from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.memory.weights import attach_weights, create_weights, weights_bytes, write_weights
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.adapters import load_adapter
from unifiedserve.models.registry import load_config
from unifiedserve.placement import Network
from unifiedserve.ranks.follower import follow
from unifiedserve.ranks.group import Group
from unifiedserve.ranks.messages import Leave
from unifiedserve.ranks.parts import RankPart

RANKS = 2
ROUNDS = 96
CONTEXT = 256
_NETWORKS = (Network.LANGUAGE,)


class Role(NamedTuple):
    """What a process is: one rank of several, or one that knows nothing of ranks (None)."""

    rank: int | None
    ranks: int = 1

    @property
    def threads(self) -> int:
        return RANKS // self.ranks


#: the processes that are told to step
TIMED = {"alone": Role(None), "one rank": Role(0), "ranks": Role(0, RANKS)}


class Setting:
    """What all processes are told: the model, its dtype, and a name for what they share."""

    def __init__(self, model: Path, dtype: str, batch: int) -> None:
        self.model, self.dtype, self.batch = model, dtype, batch
        self.name = f"bench-ranks-{os.getpid()}"

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    def part(self, role: Role) -> RankPart | None:
        """Return a rank's part; None for the whole."""
        text = load_config(self.model).get_text_config()
        return None if role.rank is None else RankPart(text, role.rank, role.ranks)

    def load(self, role: Role, group: Group | None) -> LanguageAdapter:
        """Load what a process has of the language model, on its cores."""
        cores = sorted(os.sched_getaffinity(0))[:RANKS]
        os.sched_setaffinity(0, cores if role.ranks == 1 else {cores[role.rank or 0]})
        torch.set_num_threads(role.threads)
        weights = attach_weights(self.weights(role))
        return load_adapter(self.model, weights, self.torch_dtype, CPU, _NETWORKS, group)

    def weights(self, role: Role) -> str:
        """Return the name of a process's weights; a single rank has the whole."""
        return f"{self.name}-weights-{role.rank or 0}of{role.ranks}"

    def group(self, role: Role) -> Group | None:
        """Become a rank."""
        part = self.part(role)
        if part is None:
            return None
        inboxes = [MessageQueue.attach(self.inbox(each)) for each in range(1, role.ranks)]
        collective = Collective.join(self.collective(role.ranks), part.rank)
        return Group(part, collective, CPU.exchanges(Meeting(part.rank, role.ranks, collective)), inboxes)

    def collective(self, ranks: int) -> str:
        return f"{self.name}-{ranks}"

    def inbox(self, rank: int) -> str:
        return f"{self.name}-inbox-{rank}"


@torch.inference_mode()
def measured(setting: Setting, role: Role, orders: Connection) -> None:
    """Be alone, or rank 0: time a step when told to, behind one that brings its data back into the caches."""
    group = setting.group(role)
    adapter = setting.load(role, group)
    step = DecodeStep(adapter, setting.batch, CONTEXT, role.ranks)
    orders.send((step.pool.name, step.layout))
    while orders.recv():
        step()
        start = time.perf_counter()
        step()
        orders.send(time.perf_counter() - start)
    if group is not None:
        group.tell(Leave())
    step.close()


def following(setting: Setting, role: Role, orders: Connection) -> None:
    """Be another rank."""
    adapter = setting.load(role, setting.group(role))
    pool, layout = orders.recv()
    assert adapter.part is not None
    follow(adapter.part, KVCache(PagePool.attach(pool), layout, part=adapter.part.group.part.rank))


@contextmanager
def stored(setting: Setting) -> Iterator[list[int]]:
    """Store the language model's weights, whole and by rank; yield the bytes of each."""
    config, sizes, made = load_config(setting.model), list[int](), list[Memory]()
    wanted = wanted_by(_NETWORKS, config)
    try:
        for role in (Role(None), *(Role(rank, RANKS) for rank in range(RANKS))):
            source = weight_source(EngineConfig(), setting.model, config, CPU, setting.dtype, setting.part(role))
            sizes.append(weights_bytes(source, setting.torch_dtype, wanted))
            made.append(create_weights(source, setting.weights(role), setting.torch_dtype, CPU.place, wanted))
            write_weights(made[-1:], source)
        yield sizes
    finally:
        for memory in made:
            memory.unlink()


@contextmanager
def joined(setting: Setting) -> Iterator[None]:
    """Make what the ranks share."""
    shared: list[Any] = [Collective.create(setting.collective(ranks), ranks) for ranks in (1, RANKS)]
    shared += [MessageQueue.create(setting.inbox(rank), 8 << 20) for rank in range(1, RANKS)]
    try:
        yield
    finally:
        for each in shared:
            each.unlink()


def measure(setting: Setting) -> dict[str, Any]:
    """Return seconds a step, by who took it, and bytes of weights."""
    spawn = multiprocessing.get_context("spawn")
    with stored(setting) as sizes, joined(setting):
        ends: dict[str, Connection] = {}
        processes = []
        for who, role in {**TIMED, "other": Role(1, RANKS)}.items():
            ends[who], theirs = spawn.Pipe()
            act = measured if who in TIMED else following
            processes.append(spawn.Process(target=act, args=(setting, role, theirs)))
            processes[-1].start()
        shapes = {who: ends[who].recv() for who in TIMED}
        ends["other"].send(shapes["ranks"])
        seconds = timed({who: ends[who] for who in TIMED})
        for who in TIMED:
            ends[who].send(False)
        for process in processes:
            process.join()
    return {
        "batch": setting.batch,
        "dtype": setting.dtype,
        "context": CONTEXT,
        "weights_bytes": {"whole": sizes[0], "ranks": sizes[1:]},
        **{who: {"step_seconds": median(found), "steps": len(found)} for who, found in seconds.items()},
        "paired": {who: paired(found, seconds["alone"]) for who, found in seconds.items() if who != "alone"},
    }


def timed(ends: dict[str, Connection]) -> dict[str, list[float]]:
    """Return the seconds of a step each in every round, in an order that turns round by round."""
    seconds: dict[str, list[float]] = {who: [] for who in ends}
    order = list(ends)
    for number in range(ROUNDS + 1):
        for who in order:
            ends[who].send(True)
            step = ends[who].recv()
            seconds[who] += [step] if number else []  # the first round faults pages in
        order.append(order.pop(0))
    return seconds


def paired(seconds: list[float], beside: list[float]) -> float:
    """Return how many times as long steps take as those beside them."""
    return median(own / other for own, other in zip(seconds, beside, strict=True))


def main(
    model: Annotated[Path, typer.Argument(help="A checkpoint's folder")],
    dtype: Annotated[str, typer.Option(help="Of weights and activations")] = "bfloat16",
    batches: Annotated[list[int] | None, typer.Option("--batch", help="Sequences in a step")] = None,
    json_file: Annotated[Path, typer.Option("--json", help="Where to save the figures")] = Path(
        "bench/results/ranks.json"
    ),
) -> None:
    """Measure decode over two ranks."""
    console, rows = Console(), []
    for batch in batches or [1, 8]:
        row = measure(Setting(model, dtype, batch))
        rows.append(row)
        alone, ranks = row["alone"]["step_seconds"], row["ranks"]["step_seconds"]
        share = max(row["weights_bytes"]["ranks"]) / row["weights_bytes"]["whole"]
        console.print(
            f"batch {batch}: {batch / alone:.1f} tokens/s with two threads, {batch / ranks:.1f} with two ranks "
            f"({1 / row['paired']['ranks']:.2f} x); a rank has {share:.3f} of the weights; "
            f"one rank takes {row['paired']['one rank']:.3f} x as long as none"
        )
    command = " ".join(["python", *sys.argv])
    json_file.write_text(json.dumps({"command": command, "machine": describe_machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
