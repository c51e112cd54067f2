"""What a step of decode costs the host where the device decodes by itself: all that a worker does but wait for it.

A real decode worker, with its queues and its table of sequences, over a device that is done at once and whose tokens
are made up. What is left is what a GPU need not wait for, as the next step is launched first, but what its steps must
not be shorter than; launching a CUDA graph and three copies, about 50 µs, come on top.

    python bench/decode_host.py --json bench/results/decode-host.json
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from uuid import uuid4

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from unifiedserve.attention import PagedKV
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, DecodeRow, DecodeStep
from unifiedserve.device.cpu.device import CpuDevice, CpuKernels
from unifiedserve.device.cuda.decode_rows import DecodeRows
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.memory.kv_cache import KVLayout
from unifiedserve.memory.shared import (
    ENGINE_INBOX,
    EngineLayout,
    MemoryLayout,
    PoolSize,
    SharedMemory,
    create_pages,
    free,
)
from unifiedserve.memory.weights import load_weights
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import Generation, pack
from unifiedserve.models.default import DEFAULT_CHECKPOINT
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import FIRST_MEMORY, Instance, Placement, Stage
from unifiedserve.worker.loop import Worker
from unifiedserve.worker.spec import WorkerSpec

BATCHES = [1, 8, 64]
CONTEXT = 4096
STEPS, WARM_UP = 400, 50
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0, ignore_eos=True),
    "sampled (top_p 0.9)": SamplingParams(temperature=0.8, top_p=0.9, seed=1, ignore_eos=True),
}


class Point(NamedTuple):
    """Microseconds of the host a step, median and 95th percentile, and those of the drawing of tokens within them."""

    sampling: str
    batch: int
    median: float
    p95: float
    drawing: float


class Done:
    """A step that is done."""

    def __init__(self, rows: int) -> None:
        self._tokens = [9] * rows

    def wait(self) -> None:
        """Return at once."""

    def tokens(self) -> list[int]:
        return self._tokens


class AtOnce:
    """A decoder that keeps its rows as a GPU does, and computes nothing."""

    eager_steps = 0

    def __init__(self, rows: int, tokens: int, page_size: int) -> None:
        self.rows = rows
        self.drawing: list[float] = []
        self._state = DecodeRows(rows, -(-tokens // page_size), CPU)
        self._logits = torch.randn(rows, 2048)

    def launch(self, rows: Sequence[DecodeRow], draw: Callable[[Tensor], Tensor]) -> DecodeStep:
        self._state.tell(rows)
        begin = time.perf_counter()
        draw(self._logits[: len(rows)])
        self.drawing.append(time.perf_counter() - begin)
        return Done(len(rows))

    def forget(self, row: int) -> None:
        self._state.forget(row)

    def prepare(self) -> None:
        """Do nothing: nothing is recorded."""


class Kernels(CpuKernels):
    """The processor's, with such a decoder."""

    made: AtOnce

    def decoder(self, model: Any, kv: PagedKV, rows: int, tokens: int, position_rows: int) -> AtOnce:
        self.made = AtOnce(rows, CONTEXT + STEPS + WARM_UP + 1, kv.page_size)
        return self.made


class Device(CpuDevice):
    kernels = Kernels()


@contextmanager
def decode_worker(batch: int) -> Iterator[tuple[Worker, SharedMemory, int]]:
    """Yield a worker that decodes up to so many sequences, its memory, and the tokens of its pages."""
    placement = Placement("decode", (Instance("decode", (Stage.DECODE,)), Instance("others", tuple(Stage)[:3])))
    config = EngineConfig.of(max_running=batch, max_model_len=CONTEXT + STEPS + WARM_UP + 1)
    processor, name = load_processor(DEFAULT_CHECKPOINT), f"decode-host-{uuid4().hex[:8]}"
    kv = KVLayout.of(processor.config, config.memory.kv_page_tokens, "float32")
    pages = (batch + 1) * -(-(config.checkpoint.max_model_len + 2) // config.memory.kv_page_tokens)
    own = MemoryLayout(
        kv=PoolSize(pages, kv.page_bytes),
        patch=PoolSize(1, processor.patch_row_bytes),
        visual=PoolSize(1, processor.visual_dim * 4),
        weights=f"{name}-weights",
    )
    layout = EngineLayout(
        engine_id=name,
        memories={FIRST_MEMORY: own},
        instances=tuple(instance.name for instance in placement.instances),
        state_pages=kv.state_pages,
    )
    taken = create_pages(layout, name)
    memory = SharedMemory.create(layout, taken)
    weights = load_weights(DEFAULT_CHECKPOINT, own.weights, torch.float32)
    try:
        spec = WorkerSpec(
            config=config,
            placement=placement,
            instance=placement.instances[0],
            number=1,
            layout=layout,
            device="cpu",
            model_dir=str(DEFAULT_CHECKPOINT),
            dtype="float32",
            patch_row_bytes=processor.patch_row_bytes,
            visual_dim=processor.visual_dim,
            vocab_size=processor.vocab_size,
            eos_token_ids=processor.eos_token_ids,
        )
        yield Worker(spec, Device()), memory, config.memory.kv_page_tokens
    finally:
        memory.unlink()
        free([weights, *taken.values()])


def measure(sampling: str, batch: int) -> Point:
    """Measure the steps of so many sequences."""
    with decode_worker(batch) as (worker, memory, page_tokens):
        for uid in range(1, batch + 1):
            pages = memory.pools[FIRST_MEMORY, "kv"].allocate(-(-CONTEXT // page_tokens), uid, 1)
            memory.inboxes["decode"].send(pack(generation(uid, pages.tolist(), SAMPLINGS[sampling])))
        times = []
        for _ in range(WARM_UP + STEPS):
            begin = time.perf_counter()
            worker.turn(0.0)
            times.append(1e6 * (time.perf_counter() - begin))
            memory.inboxes[ENGINE_INBOX].receive_many(256, timeout=0)
        worker.close()
        times = sorted(times[WARM_UP:])
        drawing = statistics.median(Device.kernels.made.drawing)
        return Point(sampling, batch, statistics.median(times), times[int(0.95 * STEPS)], 1e6 * drawing)


def generation(uid: int, pages: list[int], sampling: SamplingParams) -> Generation:
    """Return an answer behind a long prompt."""
    return Generation(
        ticket=Ticket(uid, 0.0),
        index=0,
        token_ids=[9] * CONTEXT,
        num_prompt=CONTEXT - 1,
        pages=pages,
        position_offset=0,
        sampling=sampling.for_choice(uid),
    )


def main(json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures here")] = None) -> None:
    """Measure the host's part of steps of decode."""
    cases = [(sampling, batch) for sampling in SAMPLINGS for batch in BATCHES]
    points = [measure(*case) for case in track(cases, description="steps", console=Console(stderr=True))]
    table = Table(title=f"microseconds of the host a step, contexts of {CONTEXT:,}: median (p95), of that drawing")
    for column in ("tokens", "sequences", "host", "drawing, on this CPU"):
        table.add_column(column, justify="right")
    for p in points:
        table.add_row(p.sampling, str(p.batch), f"{p.median:.0f} ({p.p95:.0f})", f"{p.drawing:.0f}")
    Console().print(table)
    if json_path:
        command = " ".join(["python", *sys.argv])
        found = {"command": command, "machine": describe_machine(), "points": [point._asdict() for point in points]}
        json_path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
