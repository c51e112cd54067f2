"""A KV cache of codes: attention is exact in what they stand for, which is what was stored, but for rounding."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from dense_attention import DTYPES, TOLERANCE, dense, some_limits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve.attention import PLAIN, AttentionRules, RaggedBatch
from unifiedserve.attention.base import Span
from unifiedserve.device import CPU
from unifiedserve.memory.kv_cache import KVCache, KVLayout

per_example = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextmanager
def coded_cache(pages: int, page_size: int, kv_heads: int, head_dim: int) -> Iterator[KVCache]:
    """Two layers, without a scale that is a number wherever nothing was written."""
    layout = KVLayout(2, page_size, kv_heads, head_dim, "int8")
    pool = PagePool.create(f"test-codes-{uuid.uuid4().hex[:12]}", pages, layout.page_bytes)
    try:
        kv = KVCache(pool, layout)
        scales_of(kv).fill_(torch.nan)
        yield kv
    finally:
        pool.close()
        pool.unlink()


def scales_of(kv: KVCache) -> Tensor:
    assert kv.scales is not None
    return kv.scales


def stored(kv: KVCache, pages: list[int], tokens: int) -> tuple[Tensor, Tensor]:
    """The first tokens' keys and values in layer 1, float64 [tokens, kv_heads, head_dim]."""
    codes, scales = kv.pages[pages, 1].double(), scales_of(kv)[pages, 1].double()
    keys, values = (codes * scales.transpose(2, 3)[..., None]).transpose(0, 1).flatten(1, 2)
    return keys[:tokens], values[:tokens]


def store_any(kv: KVCache, pages: list[int], tokens: int, random: torch.Generator) -> None:
    """Let the first tokens have any codes and scales in layer 1."""
    table, index = torch.tensor(pages), torch.arange(tokens)
    page, slot = table[index // kv.page_size], index % kv.page_size
    for kind in range(2):
        heads, head_dim = kv.pages.shape[-2:]
        codes = torch.randint(-127, 128, (tokens, heads, head_dim), generator=random, dtype=torch.int8)
        kv.pages[:, 1, kind][page, slot] = codes
        scales_of(kv)[:, 1, kind].transpose(1, 2)[page, slot] = torch.rand(tokens, heads, generator=random) / 40 + 1e-3


def check_attention(
    lengths: list[tuple[int, int]],
    page_size: int,
    heads: tuple[int, int],
    head_dim: int,
    dtype: torch.dtype,
    seed: int,
    rules: AttentionRules = PLAIN,
    limited: bool = False,
) -> None:
    """Sequences of (past, new) tokens in one batch, over pages in random order."""
    random = torch.Generator().manual_seed(seed)
    counts = [-(-(past + new) // page_size) for past, new in lengths]
    order = iter(torch.randperm(sum(counts) + 1, generator=random).tolist())
    with coded_cache(sum(counts) + 1, page_size, heads[1], head_dim) as kv:
        spans = []
        for (past, new), count in zip(lengths, counts, strict=True):
            pages = [next(order) for _ in range(count)]
            store_any(kv, pages, past, random)
            spans.append(Span(pages, past, past + new, None, some_limits(past, new, random) if limited else None))
        new = sum(new for _, new in lengths)
        q, k, v = (
            torch.randn(new, width, head_dim, generator=random).to(dtype) for width in (heads[0], heads[1], heads[1])
        )
        batch = RaggedBatch.build(spans, page_size)
        out = CPU.kernels.attention(batch, kv).attend(q, k, v, 1, 0.2, rules)
        rows = q.split([new for _, new in lengths])
        expected = [
            dense(row.double(), *stored(kv, list(span.pages), span.stop), 0.2, span.limits, rules)
            for row, span in zip(rows, spans, strict=True)
        ]
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), torch.cat(expected), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        for span, keys, values in zip(spans, *(x.split([new for _, new in lengths]) for x in (k, v)), strict=True):
            for given, found in zip((keys, values), stored(kv, list(span.pages), span.stop), strict=True):
                largest = given.double().abs().amax(-1, keepdim=True)
                assert ((found[span.start :] - given.double()).abs() <= largest / 253.9).all()
        assert scales_of(kv)[:, 0].isnan().all()
        assert int(scales_of(kv)[:, 1].isfinite().sum()) == 2 * heads[1] * sum(span.stop for span in spans)


@per_example
@given(
    lengths=st.lists(st.tuples(st.integers(0, 150), st.integers(1, 90)), min_size=1, max_size=4),
    page_size=st.sampled_from([1, 5, 16, 64]),
    heads=st.sampled_from([(4, 4), (6, 2), (7, 1), (14, 2), (80, 1)]),
    head_dim=st.sampled_from([1, 7, 32, 40, 64, 72, 80, 96, 128]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
    window=st.none() | st.integers(1, 250),
    limited=st.booleans(),
)
def test_attention(
    instruction_set: str,
    lengths: list[tuple[int, int]],
    page_size: int,
    heads: tuple[int, int],
    head_dim: int,
    dtype: torch.dtype,
    seed: int,
    window: int | None,
    limited: bool,
) -> None:
    check_attention(lengths, page_size, heads, head_dim, dtype, seed, AttentionRules(window), limited)


@pytest.mark.parametrize(
    "rules", [AttentionRules(cap=2.0), AttentionRules(sinks=torch.arange(6.0)), AttentionRules(chunk=50, cap=5.0)]
)
@pytest.mark.parametrize("limited", [False, True])
def test_caps_sinks_and_chunks(instruction_set: str, rules: AttentionRules, limited: bool) -> None:
    check_attention([(90, 30), (1200, 1)], 16, (6, 2), 40, torch.float32, 0, rules._replace(window=70), limited)


@pytest.mark.parametrize("window", [None, 1, 1000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_contexts_are_split_among_threads(instruction_set: str, dtype: torch.dtype, window: int | None) -> None:
    check_attention([(5000, 1), (1020, 30), (2100, 1), (3, 2)], 16, (4, 2), 64, dtype, 1, AttentionRules(window))


def round_trip(keys: Tensor) -> Tensor:
    """What codes of keys [n, head_dim] stand for."""
    with coded_cache(1, len(keys), 1, keys.shape[1]) as kv:
        step = CPU.kernels.attention(RaggedBatch.build([Span([0], 0, len(keys))], len(keys)), kv)
        step.attend(torch.zeros_like(keys)[:, None], keys[:, None], keys[:, None], 1, 1.0)
        return stored(kv, [0], len(keys))[0][:, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [-60, -10, 0, 17, 100])
def test_whole_steps_are_stored_as_they_are(instruction_set: str, dtype: torch.dtype, exponent: int) -> None:
    steps = torch.arange(-127, 128)[None] * 2.0**exponent
    torch.testing.assert_close(round_trip(steps.to(dtype)), steps.double(), rtol=1e-6, atol=0)


def test_zeros_and_what_is_nearly_zero(instruction_set: str) -> None:
    keys = torch.zeros(3, 20)
    keys[1] = 1e-42
    assert (round_trip(keys) - keys).abs().max() <= 1e-30


def test_the_error_of_normal_numbers(instruction_set: str) -> None:
    keys = torch.randn(2000, 128, generator=torch.Generator().manual_seed(0))
    assert 0.005 < (round_trip(keys) - keys).norm() / keys.norm() < 0.0075


def test_a_page_holds_twice_as_many_tokens() -> None:
    plain, coded = (KVLayout(28, 16, 4, 128, dtype).page_bytes for dtype in ("bfloat16", "int8"))
    assert coded == 28 * 2 * 16 * 4 * (128 + 4)
    assert 1.9 < plain / coded < 2
