"""No bit of a row depends on its company: on the batch, on the chunk that it comes in, or on the number of threads.

So an answer is the same alone and among others, with drafts or without, and where a prompt is computed again.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from encoder_media import pixels, plan
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from model_loop import make_adapter
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve.attention import AttentionRules, RaggedBatch
from unifiedserve.attention.base import Span
from unifiedserve.device.cpu import CPU
from unifiedserve.device.cpu.processor import use_threads
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.default import DEFAULT_CHECKPOINT

HEADS, KV_HEADS, HEAD_DIM, PAGE = 6, 2, 32, 16
WHOLE = 1 << 30

Step = list[tuple[int, int, int]]  # of which sequences which tokens [start, stop)


def cut(lengths: Sequence[int], sizes: Sequence[int]) -> list[Step]:
    """Steps of sequences side by side, of which each takes the next sizes in turn."""
    done, steps, turn = [0] * len(lengths), [], 0
    while any(start < length for start, length in zip(done, lengths, strict=True)):
        step: Step = []
        for i, length in enumerate(lengths):
            stop = min(length, done[i] + sizes[(turn + i) % len(sizes)])
            if stop > done[i]:
                step.append((i, done[i], stop))
                done[i] = stop
        steps.append(step)
        turn += 1
    return steps


@contextmanager
def computing_with(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    use_threads(threads)
    try:
        yield
    finally:
        use_threads(before)


@contextmanager
def new_cache(layout: KVLayout, tokens: int) -> Iterator[KVCache]:
    name = f"test-invariance-{uuid.uuid4().hex[:12]}"
    pool = PagePool.create(name, tokens // layout.page_size + 8, layout.page_bytes)
    try:
        yield KVCache(pool, layout)
    finally:
        pool.close()
        pool.unlink()


def pages_of(lengths: Sequence[int], seed: int) -> list[list[int]]:
    """Pages of each sequence, in random order."""
    counts = [-(-length // PAGE) for length in lengths]
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(seed))
    return [part.tolist() for part in order.split(counts)]


def attended(
    lengths: Sequence[int], steps: Sequence[Step], dtype: torch.dtype, coded: bool, rules: AttentionRules, seed: int
) -> list[Tensor]:
    """Each sequence's [length, HEADS, HEAD_DIM]; sequence i is the same in any company."""
    inputs = []
    for i, length in enumerate(lengths):
        random = torch.Generator().manual_seed(i)
        inputs.append([torch.randn(length, n, HEAD_DIM, generator=random).to(dtype) for n in (HEADS, *[KV_HEADS] * 2)])
    tables, out = pages_of(lengths, seed), [torch.empty_like(q) for q, _, _ in inputs]
    layout = KVLayout(1, PAGE, KV_HEADS, HEAD_DIM, "int8" if coded else name_of(dtype))
    with new_cache(layout, sum(lengths)) as kv:
        for step in steps:
            batch = RaggedBatch.build([Span(tables[i], start, stop) for i, start, stop in step], PAGE)
            rows = [[part[start:stop] for part in inputs[i]] for i, start, stop in step]
            q, k, v = (torch.cat(parts) for parts in zip(*rows, strict=True))
            found = CPU.kernels.attention(batch, kv).attend(q, k, v, 0, 0.3, rules)
            for (i, start, stop), part in zip(step, found.split([len(row[0]) for row in rows]), strict=True):
                out[i][start:stop] = part
    return out


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=3),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    coded=st.booleans(),
    window=st.none() | st.integers(1, 250),
    chunk=st.none() | st.integers(1, 200),
    cap=st.none() | st.just(5.0),
    seed=st.integers(0, 1000),
)
@example([1130, 40], [1030, 1, 7, 40], torch.bfloat16, False, None, None, None, 0)  # several parts of the keys
@example([1130, 40], [1030, 1, 7, 40], torch.bfloat16, True, 1100, None, None, 0)
@example([1130, 40], [1030, 1, 7, 40], torch.float32, False, 300, 1000, 5.0, 0)
def test_attention(
    instruction_set: str,
    lengths: list[int],
    sizes: list[int],
    dtype: torch.dtype,
    coded: bool,
    window: int | None,
    chunk: int | None,
    cap: float | None,
    seed: int,
) -> None:
    rules = AttentionRules(window, chunk, cap)
    together = attended(lengths, cut(lengths, sizes), dtype, coded, rules, seed)
    whole = attended(lengths, cut(lengths, [WHOLE]), dtype, coded, rules, seed + 1)
    for found, expected in zip(together, whole, strict=True):
        assert torch.equal(found, expected)


@cache
def bundled(quantization: str) -> LanguageAdapter:
    """The bundled model in bfloat16, its matrices of so many bits."""
    with computing_with(2):
        return make_adapter(DEFAULT_CHECKPOINT, torch.bfloat16, quantization=quantization)


def logits(
    adapter: LanguageAdapter, lengths: Sequence[int], steps: Sequence[Step], coded: bool = False, seed: int = 0
) -> list[Tensor]:
    """Each sequence's [length, vocab] for tokens that are the same in any company."""
    ids = [torch.randint(0, 1000, (n,), generator=torch.Generator().manual_seed(i)) for i, n in enumerate(lengths)]
    tables, parts = pages_of(lengths, seed), [[] for _ in lengths]
    layout = KVLayout.of(adapter.config, PAGE, "int8" if coded else name_of(adapter.dtype))
    with new_cache(layout, sum(lengths)) as kv:
        for step in steps:
            batch = RaggedBatch.build([Span(tables[i], start, stop) for i, start, stop in step], PAGE)
            tokens = torch.cat([ids[i][start:stop] for i, start, stop in step])
            positions = torch.cat([torch.arange(start, stop) for _, start, stop in step]).expand(3, -1)
            embeds = adapter.embed(tokens, None, torch.zeros(len(tokens), dtype=torch.bool))
            found = adapter.logits(adapter.forward(embeds, positions, batch, kv)).clone()
            sizes = [stop - start for _, start, stop in step]
            for (i, *_), part in zip(step, found.split(sizes), strict=True):
                parts[i].append(part)
    return [torch.cat(each) for each in parts]


@pytest.mark.parametrize(("quantization", "coded"), [("none", False), ("int8", True), ("int4", False)])
def test_logits(quantization: str, coded: bool) -> None:
    """A prompt's chunks beside decode and drafts, with other numbers of threads."""
    adapter, lengths = bundled(quantization), [1060, 40, 7, 33]
    alone = logits(adapter, lengths, [[(i, 0, n)] for i, n in enumerate(lengths)], coded)
    for threads, sizes in (2, [500, 1, 8, 33, 64]), (1, [1040, 1]):
        with computing_with(threads):
            together = logits(adapter, lengths, cut(lengths, sizes), coded, seed=1)
        for found, expected in zip(together, alone, strict=True):
            assert torch.equal(found, expected)


def test_units_of_media() -> None:
    """An image alone and in groups with others, of several kinds and sizes."""
    adapter = bundled("none")
    units = [(plan("image", 3, 5), 1), (plan("video", 4, 4, 3), 3), (plan("image", 12, 9), 1), (plan("image", 1, 1), 1)]
    patches = pixels(units)
    together, row, done = adapter.encode(patches, units), 0, 0
    for each, count in units:
        for _ in range(count):
            own = adapter.encode(patches[row : row + each.patches_per_unit], [(each, 1)])
            assert torch.equal(together[done : done + len(own)], own)
            row, done = row + each.patches_per_unit, done + len(own)
