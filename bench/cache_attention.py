"""Attention over a KV cache of codes beside one of values: a decode step's over long contexts, and a prompt chunk's.

Heads are those of a model of seven billion parameters. A repetition goes through twelve layers, so that none of them is
in the processor's caches from the one before; repetitions are interleaved, and figures are the best of them.

    python bench/cache_attention.py
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from ipc_buffers import PagePool
from unifiedserve.attention import RaggedBatch
from unifiedserve.attention.base import Span
from unifiedserve.device import CPU
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of

LAYERS, PAGE_TOKENS, HEADS, KV_HEADS, HEAD_DIM = 12, 16, 28, 4, 128
DTYPES = [torch.bfloat16, torch.float32]
CASES = {"decode": (16384, 1), "chunk of 512": (2048, 512)}  # tokens in the cache, and new ones


@contextmanager
def filled_cache(tokens: int, dtype: torch.dtype) -> Iterator[KVCache]:
    """Yield a cache of random keys and values, or codes."""
    layout = KVLayout(LAYERS, PAGE_TOKENS, KV_HEADS, HEAD_DIM, name_of(dtype))
    pool = PagePool.create(f"bench-cache-{os.getpid()}-{dtype.itemsize}", -(-tokens // PAGE_TOKENS), layout.page_bytes)
    try:
        kv = KVCache(pool, layout)
        if kv.scales is None:
            kv.pages.normal_()
        else:
            kv.pages.random_(-127, 128)
            kv.scales.fill_(0.01)
        yield kv
    finally:
        pool.close()
        pool.unlink()


def seconds(kv: KVCache, past: int, new: int, dtype: torch.dtype) -> float:
    """Return the seconds that a layer takes, keys and values stored first."""
    pages = torch.randperm(kv.pool.num_pages, generator=torch.Generator().manual_seed(0)).tolist()
    attention = CPU.kernels.attention(RaggedBatch.build([Span(pages, past, past + new)], PAGE_TOKENS), kv)
    q, k, v = (torch.randn(new, heads, HEAD_DIM).to(dtype) for heads in (HEADS, KV_HEADS, KV_HEADS))
    start = time.perf_counter()
    for layer in range(LAYERS):
        attention.attend(q, k, v, layer, HEAD_DIM**-0.5)
    return (time.perf_counter() - start) / LAYERS


def compare(past: int, new: int, dtype: torch.dtype, repetitions: int) -> tuple[float, float]:
    """Return the seconds of a cache of values and of one of codes."""
    with filled_cache(past + new, dtype) as plain, filled_cache(past + new, torch.int8) as coded:
        times = [[seconds(kv, past, new, dtype) for kv in (plain, coded)] for _ in range(repetitions)]
    values, codes = map(min, zip(*times, strict=True))
    return values, codes


def main(repetitions: Annotated[int, typer.Option(min=1)] = 7) -> None:
    """Print the milliseconds of a layer."""
    table = Table("", "dtype", "values, ms", "codes, ms", "ratio")
    for name, (past, new) in CASES.items():
        for dtype in DTYPES:
            values, codes = compare(past, new, dtype, repetitions)
            row = f"{1e3 * values:.2f}", f"{1e3 * codes:.2f}", f"{codes / values:.2f}"
            table.add_row(name, name_of(dtype), *row)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
