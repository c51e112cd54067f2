"""Decode over two ranks, each on a core of its own, beside one process with two threads on the same cores.

The processes live side by side and take turns in one run. What is timed is a step of decode: embedding, layers
and logits of a batch, and the tokens that come next.

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
from typing import Annotated, Any

import torch
import typer
from language_step import DecodeStep
from rich.console import Console
from torch import multiprocessing

from ipc_buffers import Collective, Memory, MessageQueue, PagePool
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.engine.weight_source import wanted_by, weight_source
from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.memory.weights import attach_weights, create_weights, weights_bytes, write_weights
from unifiedserve.models.base import LanguageAdapter
from unifiedserve.models.registry import load_adapter, load_config
from unifiedserve.placement import Network
from unifiedserve.ranks.follower import follow
from unifiedserve.ranks.group import Group
from unifiedserve.ranks.messages import Leave
from unifiedserve.ranks.parts import RankPart

RANKS = 2
ROUNDS = 12
STEPS = 8  # in a round
CONTEXT = 256
_NETWORKS = (Network.LANGUAGE,)


class Setting:
    """What all processes are told: the model, its dtype, and a name for what they share."""

    def __init__(self, model: Path, dtype: str, batch: int) -> None:
        self.model, self.dtype, self.batch = model, dtype, batch
        self.name = f"bench-ranks-{os.getpid()}"

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    def part(self, rank: int | None) -> RankPart | None:
        """Return a rank's part; None for the whole."""
        return None if rank is None else RankPart(load_config(self.model).get_text_config(), rank, RANKS)

    def load(self, rank: int | None, group: Group | None) -> LanguageAdapter:
        """Load what this process has of the language model."""
        weights = attach_weights(f"{self.name}-weights-{rank}")
        return load_adapter(self.model, weights, self.torch_dtype, CPU, _NETWORKS, group)

    def group(self, rank: int) -> Group:
        """Become a rank."""
        part = self.part(rank)
        assert part is not None
        inboxes = [MessageQueue.attach(f"{self.name}-{each}") for each in range(1, RANKS)]
        return Group(part, Collective.join(self.name, rank), inboxes)


@torch.inference_mode()
def measured(setting: Setting, rank: int | None, orders: Connection) -> None:
    """Be the process alone (None), or rank 0: time steps when told to."""
    cores = sorted(os.sched_getaffinity(0))[:RANKS]
    os.sched_setaffinity(0, cores if rank is None else {cores[rank]})
    torch.set_num_threads(RANKS if rank is None else 1)
    group = None if rank is None else setting.group(rank)
    adapter = setting.load(rank, group)
    step = DecodeStep(adapter, setting.batch, CONTEXT, 1 if rank is None else RANKS)
    orders.send((step.pool.name, step.layout))
    while orders.recv():
        seconds = []
        for _ in range(STEPS):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        orders.send(seconds)
    if group is not None:
        group.tell(Leave())
    step.close()


def following(setting: Setting, rank: int, orders: Connection) -> None:
    """Be another rank."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.set_num_threads(1)
    adapter = setting.load(rank, setting.group(rank))
    pool, layout = orders.recv()
    assert adapter.part is not None
    follow(adapter.part, KVCache(PagePool.attach(pool), layout, rank=rank))


@contextmanager
def stored(setting: Setting) -> Iterator[dict[int | None, int]]:
    """Store the language model's weights, whole and by rank; yield the bytes of each."""
    config, sizes, made = load_config(setting.model), dict[int | None, int](), list[Memory]()
    wanted = wanted_by(_NETWORKS, config)
    try:
        for rank in (None, *range(RANKS)):
            source = weight_source(EngineConfig(), setting.model, config, CPU, setting.dtype, setting.part(rank))
            sizes[rank] = weights_bytes(source, setting.torch_dtype, wanted)
            name = f"{setting.name}-weights-{rank}"
            made.append(create_weights(source, name, setting.torch_dtype, CPU.place, wanted))
            write_weights(made[-1:], source)
        yield sizes
    finally:
        for memory in made:
            memory.unlink()


@contextmanager
def joined(setting: Setting) -> Iterator[None]:
    """Make what the ranks share."""
    shared: list[Any] = [Collective.create(setting.name, RANKS)]
    shared += [MessageQueue.create(f"{setting.name}-{rank}", 8 << 20) for rank in range(1, RANKS)]
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
        for who, act, rank in (("alone", measured, None), ("ranks", measured, 0), ("other", following, 1)):
            ends[who], theirs = spawn.Pipe()
            processes.append(spawn.Process(target=act, args=(setting, rank, theirs)))
            processes[-1].start()
        ends["alone"].recv()
        ends["other"].send(ends["ranks"].recv())
        seconds: dict[str, list[float]] = {"alone": [], "ranks": []}
        for number in range(ROUNDS + 1):
            for who, found in seconds.items():
                ends[who].send(True)
                steps = ends[who].recv()
                found += steps if number else []  # the first round faults pages in
        for who in seconds:
            ends[who].send(False)
        for process in processes:
            process.join()
    taken = {who: {"step_seconds": median(found), "steps": len(found)} for who, found in seconds.items()}
    weights = {"whole": sizes[None], "ranks": [sizes[rank] for rank in range(RANKS)]}
    return {"batch": setting.batch, "dtype": setting.dtype, "context": CONTEXT, "weights_bytes": weights, **taken}


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
            f"({alone / ranks:.2f} x); a rank has {share:.3f} of the weights"
        )
    command = " ".join(["python", *sys.argv])
    json_file.write_text(json.dumps({"command": command, "machine": describe_machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
