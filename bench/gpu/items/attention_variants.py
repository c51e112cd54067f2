"""Paged attention by many sizes of its programs, to choose from: times, and errors beside torch's attention.

Compiling takes longer than measuring: processes launch each variant once on one tiny sequence, which fills Triton's
cache on disk; then they are measured alone. Shapes are those of `kernel_times`.
"""

import dataclasses
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from bench.gpu.figures import Figures
from bench.gpu.stopwatch import seconds
from unifiedserve.attention.base import RaggedBatch, Span
from unifiedserve.device.triton.attention_plan import PART_KEYS, SINGLE_ROWS, AttentionPlan
from unifiedserve.device.triton.paged_attention import (
    WGMMA_SHARED,
    Blocks,
    blocks_of,
    paged_attention,
    tile_rows,
)

PROCESSES = 14
#: keys of a block that decode is measured with for each size of its parts
PARTS = (256, 512, 1024)
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its cache, and where to compute; tests have smaller ones."""

    q_heads: int = 28
    kv_heads: int = 4
    head_dim: int = 128
    page: int = 16
    context: int = 4096
    dtype: torch.dtype = torch.bfloat16
    device: str = "cuda"
    #: so much is read in turn that nothing of it is still in the cache when its turn comes again
    working_set: int = 512 * MIB

    @property
    def groups(self) -> int:
        return self.q_heads // self.kv_heads

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)


class Case(NamedTuple):
    """So many sequences with a long context and as many new tokens each."""

    name: str
    sequences: int
    new: int


class Kind(NamedTuple):
    """What is compiled once: the kernel's sizes, and the rows of its tiles."""

    blocks: Blocks
    rows: int


class Variant(NamedTuple):
    kind: Kind
    part_keys: int


CASES = (
    Case("decode 64 × 4k", 64, 1),
    Case("prefill 512 after 4k", 1, 512),
    Case("decode 1 × 4k", 1, 1),
    Case("decode 8 × 4k", 8, 1),
)
Clock = Callable[[Callable[[int], object]], float]


def measure(figures: Figures) -> None:
    """Compile all variants by processes, then time those that compile."""
    shape = Shape()
    kinds = list(dict.fromkeys(variant.kind for case in CASES for variant in variants(case, shape)))
    begin = time.perf_counter()
    errors: dict[Kind, str] = {}
    with ProcessPoolExecutor(
        min(PROCESSES, os.cpu_count() or 1), multiprocessing.get_context("spawn"), initializer=_one_thread
    ) as pool:
        tasks = {pool.submit(compiled, kind, shape): kind for kind in kinds}
        for task in as_completed(tasks):
            if (error := task.result()) is not None:
                errors[tasks[task]] = error
                told = [{**_numbers(kind), "error": error} for kind, error in errors.items()]
                figures.add(not_compiled=told)
    figures.add(kinds=len(kinds), compile_s=time.perf_counter() - begin)
    sweep(figures, CASES, shape, errors, seconds)


def sweep(figures: Figures, cases: tuple[Case, ...], shape: Shape, errors: dict[Kind, str], clock: Clock) -> None:
    """Time the variants of each case but those with an error; rows are told sorted, with the best of each case."""
    rows, best, reference = list[dict[str, Any]](), dict[str, dict[str, Any]](), dict[str, float]()
    for case in cases:
        torch.manual_seed(0)
        problem = Problem(case, shape)
        reference[case.name] = 1e6 * clock(problem.theirs)
        expected = problem.theirs(0)
        for variant in variants(case, shape):
            if variant.kind in errors:
                continue
            row = {"case": case.name, **_numbers(variant.kind), "part_keys": variant.part_keys}
            try:
                row |= _timed(problem, variant, expected, clock)
            except torch.AcceleratorError:
                raise  # nothing more can be computed by this process
            except Exception as error:
                row |= {"us": None, "error": _one_line(error)}
            rows.append(row)
            timed = [row for row in rows if row["case"] == case.name and row["us"] is not None]
            if timed:
                best[case.name] = min(timed, key=lambda row: float(row["us"]))
            figures.add(best=best, torch_us=reference, variants=sorted(rows, key=_order))
        del problem, expected
        if shape.device == "cuda":
            torch.cuda.empty_cache()


def _timed(problem: "Problem", variant: Variant, expected: Tensor, clock: Clock) -> dict[str, Any]:
    ours = problem.by(variant)
    error = float((ours(0).float() - problem.flat(expected).float()).abs().max())
    time = clock(ours)
    decode = problem.case.new == 1
    return {
        "us": 1e6 * time,
        "gb_s": problem.moved / time / 1e9 if decode else None,
        "tflop_s": None if decode else problem.flops / time / 1e12,
        "largest_error": error,
    }


def _order(row: dict[str, Any]) -> tuple[str, float]:
    return row["case"], float("inf") if row["us"] is None else row["us"]


def variants(case: Case, shape: Shape) -> Iterator[Variant]:
    """Return the variants of a case: today's first, then all whose buffers fit and whose warps have rows."""
    if case.new > 1:
        today = tile_rows(shape.dtype, shape.head_dim, WGMMA_SHARED)
        yield Variant(Kind(blocks_of(shape.dtype, shape.head_dim, today, WGMMA_SHARED), today), PART_KEYS)
        for keys, rows, split, stages in itertools.product((64, 128, 32), (128, 64), (True, False), (3, 2, 4)):
            for warps in (8,) if rows == 128 else (4, 8):
                if _fits(blocks := Blocks(keys, warps, stages, split), rows, shape):
                    yield Variant(Kind(blocks, rows), PART_KEYS)
        return
    yield Variant(Kind(blocks_of(shape.dtype, shape.head_dim, SINGLE_ROWS), SINGLE_ROWS), PART_KEYS)
    for keys, stages, warps, split in itertools.product((64, 32, 128), (3, 4, 2), (2, 4), (False, True)):
        if _fits(blocks := Blocks(keys, warps, stages, split), SINGLE_ROWS, shape):
            for part_keys in PARTS if stages == 3 and warps == 4 else (512,):
                yield Variant(Kind(blocks, SINGLE_ROWS), part_keys)


def _fits(blocks: Blocks, rows: int, shape: Shape) -> bool:
    """Tell whether the queries and the stages' keys and values fit into an H100's shared memory."""
    width = shape.head_dim * shape.dtype.itemsize
    return width * (rows + 2 * blocks.stages * blocks.keys) <= WGMMA_SHARED


class Problem:
    """A case's cache, queries and answers."""

    def __init__(self, case: Case, shape: Shape) -> None:
        self.case, self._shape = case, shape
        sequences, new, length = case.sequences, case.new, shape.context + case.new
        count = -(-length // shape.page)
        layer = 2 * sequences * length * shape.kv_heads * shape.head_dim * shape.dtype.itemsize
        self._layers = max(2, -(-shape.working_set // layer))

        def random(*sizes: int) -> Tensor:
            return torch.randn(*sizes, dtype=shape.dtype, device=shape.device)

        self._cache = random(sequences * count, self._layers, 2, shape.page, shape.kv_heads, shape.head_dim)
        tables = torch.randperm(sequences * count).view(sequences, count)
        spans = [Span(table, shape.context, length) for table in tables.tolist()]
        self._batch = RaggedBatch.build(spans, shape.page)
        self._q = random(sequences * new, shape.q_heads, shape.head_dim)
        self.moved = layer + 2 * self._q.nbytes
        self.flops = 4 * sequences * shape.q_heads * shape.head_dim * (new * shape.context + new * (new + 1) // 2)
        # what torch gets is contiguous: it need not look at a page table
        there = tables.to(shape.device)
        self._keys, self._values = (
            torch.stack(
                [self._cache[there, layer, part].flatten(1, 2)[:, :length].transpose(1, 2) for layer in self._numbers()]
            )
            for part in (0, 1)
        )

    def _numbers(self) -> range:
        return range(self._layers)

    def by(self, variant: Variant) -> Callable[[int], Tensor]:
        """Return attention in a layer by a variant."""
        blocks, rows = variant.kind
        plan = AttentionPlan.of_batch(self._batch, self._shape.groups, self._upload, rows, variant.part_keys)

        def ours(number: int) -> Tensor:
            layer = self._cache[:, number % self._layers]
            return paged_attention(self._q, layer[:, 0], layer[:, 1], plan, self._shape.scale, blocks=blocks)

        return ours

    def theirs(self, number: int) -> Tensor:
        """Return torch's attention in a layer: [sequences, heads, tokens, head_dim]."""
        layer, new = number % self._layers, self.case.new
        queries = self._q.view(self.case.sequences, new, self._shape.q_heads, -1).transpose(1, 2)
        mask = causal_lower_right(new, self._shape.context + new) if new > 1 else None
        return functional.scaled_dot_product_attention(
            queries, self._keys[layer], self._values[layer], mask, scale=self._shape.scale, enable_gqa=True
        )

    def flat(self, theirs: Tensor) -> Tensor:
        return theirs.transpose(1, 2).flatten(0, 1)

    def _upload(self, host: Tensor) -> Tensor:
        return host.to(self._shape.device)


def compiled(kind: Kind, shape: Shape) -> str | None:
    """Launch a kind once, on a short sequence, and return why it cannot be, if so."""
    tiny = Case("tiny", 1, 1 if kind.rows == SINGLE_ROWS else 2)
    try:
        problem = Problem(tiny, dataclasses.replace(shape, context=2 * shape.page - 2, working_set=0))
        problem.by(Variant(kind, PART_KEYS))(0)
        if shape.device == "cuda":
            torch.cuda.synchronize()
    except Exception as error:
        return _one_line(error)
    return None


def _numbers(kind: Kind) -> dict[str, Any]:
    return {"rows": kind.rows, **kind.blocks._asdict()}


def _one_thread() -> None:
    torch.set_num_threads(1)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
