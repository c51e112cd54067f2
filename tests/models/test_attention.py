"""Paged attention equals dense attention, whatever the pages, chunks and batch; nothing else is written."""

import pytest
import torch
from dense_attention import dense, some_limits
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve.attention import AttentionRules, CrossSpan, RaggedBatch, cross_attention
from unifiedserve.attention.base import Span
from unifiedserve.device import CPU
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.models.registry import load_config

PAGES, HEAD_DIM = 40, 8
lengths = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=5)


@settings(max_examples=60)
@given(
    lengths=lengths,
    page_size=st.sampled_from([1, 3, 16]),
    heads=st.sampled_from([(4, 4), (6, 2), (4, 1)]),
    layer=st.integers(0, 1),
    seed=st.integers(0, 2**32),
    window=st.none() | st.integers(1, 70),
    limited=st.lists(st.booleans(), min_size=5, max_size=5) | st.none(),
)
def test_equals_dense(
    lengths: list[tuple[int, int]],
    page_size: int,
    heads: tuple[int, int],
    layer: int,
    seed: int,
    window: int | None,
    limited: list[bool] | None,
) -> None:
    random = torch.Generator().manual_seed(seed)
    q_heads, kv_heads = heads
    layout = KVLayout(2, page_size, kv_heads, HEAD_DIM, "float32")
    needed = [-(-(past + new) // page_size) for past, new in lengths]
    pool = PagePool.create(f"test-models-attention-{seed}", sum(needed) + 2, layout.page_bytes)
    try:
        kv = KVCache(pool, layout)
        torch.frombuffer(pool.data(), dtype=torch.float32).fill_(torch.nan)
        order = torch.randperm(sum(needed), generator=random).tolist()
        spans, expected, queries, keys, values = [], [], [], [], []
        for number, ((past, new), count) in enumerate(zip(lengths, needed, strict=True)):
            limits = some_limits(past, new, random) if limited and limited[number] else None
            pages, order = order[:count], order[count:]
            q, k, v = (
                torch.randn(rows, width, HEAD_DIM, generator=random)
                for rows, width in ((new, q_heads), (past + new, kv_heads), (past + new, kv_heads))
            )
            for index in range(past):
                page, offset = pages[index // page_size], index % page_size
                kv.k(layer)[page, offset], kv.v(layer)[page, offset] = k[index], v[index]
            spans.append(Span(pages, past, past + new, None, limits))
            expected.append(dense(q, k, v, HEAD_DIM**-0.5, limits, AttentionRules(window)))
            queries.append(q)
            keys.append(k[past:])
            values.append(v[past:])
        batch = RaggedBatch.build(spans, page_size)
        q, k, v = torch.cat(queries), torch.cat(keys), torch.cat(values)
        out = CPU.kernels.attention(batch, kv).attend(q, k, v, layer, HEAD_DIM**-0.5, AttentionRules(window))
        torch.testing.assert_close(out, torch.cat(expected), rtol=1e-4, atol=1e-5)
        tokens = sum(past + new for past, new in lengths)
        assert int(kv.k(layer).isfinite().sum()) == tokens * kv_heads * HEAD_DIM
        assert kv.k(1 - layer).isnan().all()
        assert kv.v(1 - layer).isnan().all()
    finally:
        pool.close()
        pool.unlink()


def test_index_arrays() -> None:
    batch = RaggedBatch.build([Span([7, 3], 0, 5), Span([9, 1, 4], 6, 7)], page_size=4)
    assert batch.qo_indptr.tolist() == [0, 5, 6]
    assert batch.kv_page_indptr.tolist() == [0, 2, 4]
    assert batch.kv_page_indices.tolist() == [7, 3, 9, 1]  # the third page is not needed yet
    assert batch.kv_lens.tolist() == [5, 7]
    assert batch.slots.tolist() == [28, 29, 30, 31, 12, 6]
    dtypes = [tensor.dtype for tensor in vars(batch).values() if isinstance(tensor, Tensor)]
    assert dtypes == [torch.int32] * 4 + [torch.int64, torch.int32]
    assert batch.wanted_rows.tolist() == list(range(6))
    assert batch.begins.tolist() == [True, False]


def test_wanted_rows() -> None:
    spans = [Span([0], 0, 3, 1), Span([1], 0, 2, 0), Span([2], 1, 4), Span([3], 3, 4, 1)]
    batch = RaggedBatch.build(spans, page_size=4)
    assert batch.wanted_indptr.tolist() == [0, 1, 1, 4, 5]
    assert batch.wanted_rows.tolist() == [2, 5, 6, 7, 8]
    assert RaggedBatch.build([Span([1], 0, 2, 0)], 4).wanted_rows.tolist() == []


@pytest.mark.parametrize(
    "span",
    [
        Span([1], 0, 5),
        Span([1], 2, 2),
        Span([1], 3, 2),
        Span([1], -1, 2),
        Span([1], 0, 2, 3),
        Span([1], 0, 2, -1),
        Span([1], 0, 2, 0, torch.tensor([1, 3])),
        Span([1], 0, 2, 0, torch.tensor([1])),
    ],
)
def test_bad_spans(span: Span) -> None:
    with pytest.raises(ValueError, match=r"no new tokens|cannot hold 5 tokens|of 2 new tokens are wanted|limits"):
        RaggedBatch.build([span], page_size=4)


def test_layout(checkpoint: object) -> None:
    layout = KVLayout.of(load_config(checkpoint), 16, "bfloat16")  # type: ignore[arg-type]
    assert layout.shape == (4, 2, 16, 2, 32)
    assert layout.page_bytes == 4 * 2 * 16 * 2 * 32 * 2


def test_wrong_page_size(arena_name: str) -> None:
    pool = PagePool.create(arena_name, 2, 4096)
    try:
        with pytest.raises(ValueError, match="pages of 4096 bytes, the model needs 512"):
            KVCache(pool, KVLayout(1, 4, 2, 8, "float32"))
    finally:
        pool.close()
        pool.unlink()


@settings(max_examples=60)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 60)), min_size=1, max_size=4),
    heads=st.sampled_from([(4, 4), (6, 2), (4, 1)]),
    seed=st.integers(0, 2**32),
)
def test_cross_attention_equals_dense(lengths: list[tuple[int, int]], heads: tuple[int, int], seed: int) -> None:
    """Over a part of each row of a buffer, in any order; rows may serve several spans."""
    random = torch.Generator().manual_seed(seed)
    q_heads, kv_heads = heads
    keys, values = torch.randn(100, 2, kv_heads, HEAD_DIM, generator=random).unbind(1)
    spans = [CrossSpan(0, n, torch.randperm(100, generator=random)[:m]) for n, m in lengths]
    queries = [torch.randn(n, q_heads, HEAD_DIM, generator=random) for n, _ in lengths]
    expected = [
        dense(q, keys[span.rows], values[span.rows], HEAD_DIM**-0.5, torch.full((len(q),), len(span.rows)))
        for q, span in zip(queries, spans, strict=True)
    ]
    found = cross_attention(torch.cat(queries), keys, values, spans, HEAD_DIM**-0.5)
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-4, atol=1e-5)
