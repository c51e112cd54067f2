"""The kernels equal the same sums in float64, with every instruction set of this machine, whatever the shapes."""

import ctypes
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from dense_attention import DTYPES, TOLERANCE, dense
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve import _core
from unifiedserve.attention import PLAIN, AttentionRules, RaggedBatch
from unifiedserve.attention.base import Span
from unifiedserve.device import CPU
from unifiedserve.device.cpu.matrix import Matrix
from unifiedserve.device.cpu.panels import by_panel, from_panels, pack_halves, to_panels
from unifiedserve.device.cpu.processor import cpu_features, slowness, thread_pool
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of

POOL = _core.ThreadPool(3)

per_example = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, pool: _core.ThreadPool = POOL) -> Tensor:
    y = torch.full((len(x), len(weight)), torch.nan)
    _core.linear(pool, x, Matrix.of(weight).native(bias), y)
    return y


@per_example
@given(
    rows=st.integers(0, 40) | st.integers(60, 200),
    outputs=st.integers(1, 90),
    inputs=st.integers(1, 300),
    has_bias=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
)
def test_linear(
    instruction_set: str, rows: int, outputs: int, inputs: int, has_bias: bool, dtype: torch.dtype, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    inputs += inputs % 2  # two values of bfloat16 share a lane
    x, weight, bias = (
        torch.randn(*shape, generator=random).to(dtype) for shape in ((rows, inputs), (outputs, inputs), (outputs,))
    )
    expected = x.double() @ weight.double().T + (bias.double() if has_bias else 0)
    y = linear(x, weight, bias if has_bias else None)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5 * inputs**0.5)


@per_example
@given(
    rows=st.integers(0, 40) | st.integers(60, 300),
    outputs=st.integers(1, 90),
    lanes=st.integers(1, 150),
    has_bias=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_weights_of_bfloat16_meet_floats_without_a_loss(
    instruction_set: str, rows: int, outputs: int, lanes: int, has_bias: bool, seed: int
) -> None:
    """To the bit, the products are those of the same weights as floats."""
    random = torch.Generator().manual_seed(seed)
    x, weight, bias = (
        torch.randn(*shape, generator=random) for shape in ((rows, 2 * lanes), (outputs, 2 * lanes), (outputs,))
    )
    narrow, summand = weight.bfloat16(), bias if has_bias else None
    y = torch.full((rows, outputs), torch.nan)
    _core.linear(POOL, x, Matrix.of(narrow).native(summand), y)
    assert torch.equal(y, linear(x, narrow.float(), summand))


STEPS = {
    "none": lambda product, other: product,
    "silu": lambda product, other: torch.nn.functional.silu(product),
    "plus": lambda product, other: product + other,
    "times": lambda product, other: product * other,
}


@per_example
@given(
    rows=st.integers(0, 40) | st.integers(200, 600),
    outputs=st.integers(1, 90) | st.integers(500, 700),
    lanes=st.integers(1, 60),
    step=st.sampled_from(sorted(STEPS)),
    in_place=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
)
def test_linear_with_what_follows(
    instruction_set: str, rows: int, outputs: int, lanes: int, step: str, in_place: bool, dtype: torch.dtype, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    x, weight, bias, other = (
        torch.randn(*shape, generator=random).to(dtype)
        for shape in ((rows, 2 * lanes), (outputs, 2 * lanes), (outputs,), (rows, outputs))
    )
    expected = STEPS[step](x.double() @ weight.double().T + bias.double(), other.double())
    taken = other if step in ("plus", "times") else None
    y = other if taken is not None and in_place else torch.full_like(other, torch.nan)
    _core.linear_then(POOL, x, Matrix.of(weight).native(bias), step, taken, y)
    tolerance = 2**-8 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=1e-5 * (2 * lanes) ** 0.5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_does_not_depend_on_the_batch(instruction_set: str, dtype: torch.dtype) -> None:
    x, weight = torch.randn(200, 900).to(dtype), torch.randn(333, 900).to(dtype)
    alone = torch.cat([linear(row[None].contiguous(), weight, None) for row in x])
    for rows in (2, 3, 7, 8, 9, 16, 32, 33, 64, 150, 200):
        assert torch.equal(linear(x[:rows], weight, None), alone[:rows])


@per_example
@given(
    rows=st.integers(0, 5),
    width=st.integers(1, 200) | st.integers(40_000, 41_000),
    distinct=st.integers(1, 300),
    of=st.sampled_from([1.0, -1.0, torch.inf, -torch.inf]),
    seed=st.integers(0, 2**32),
)
def test_the_likeliest(instruction_set: str, rows: int, width: int, distinct: int, of: float, seed: int) -> None:
    """Of few distinct logits many are equal, and the first counts; one may be beyond all numbers."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randint(-distinct, distinct, (rows, width), generator=random).float()
    if rows:
        logits[rows // 2, width // 2] = of
    found = torch.full((rows,), -1)
    _core.likeliest(POOL, logits, found)
    assert found.tolist() == [row.index(max(row)) for row in logits.tolist()]


def test_logits_that_are_no_numbers_are_passed_over(instruction_set: str) -> None:
    logits = torch.full((2, 70), torch.nan)
    logits[0, 50], logits[0, 69] = -torch.inf, -3.0
    _core.likeliest(POOL, logits, found := torch.full((2,), -1))
    assert found.tolist() == [69, 0]


@pytest.mark.parametrize("start", [0, 1])
def test_a_matrix_may_begin_anywhere_in_memory(start: int) -> None:
    matrix = torch.randn(start + 24 * 10).bfloat16()[start:].view(24, 10)
    assert torch.equal(from_panels(to_panels(matrix), 24), matrix)


@per_example
@given(
    rows=st.integers(0, 20) | st.integers(0, 300),
    outputs=st.integers(1, 90),
    codes_of=st.tuples(st.sampled_from([4, 8]), st.integers(1, 12), st.sampled_from([16, 32, 64, 128, 256]))
    | st.tuples(st.just(8), st.just(1), st.integers(5, 80).map(lambda units: 64 * units)),
    whole=st.booleans(),
    zero=st.sampled_from([None, 8.0, 128.0, -1.5]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
)
def test_codes(
    instruction_set: str,
    rows: int,
    outputs: int,
    codes_of: tuple[int, int, int],
    whole: bool,
    zero: float | None,
    dtype: torch.dtype,
    seed: int,
) -> None:
    """x of whole numbers whose largest is 127 has codes without an error, so the product is exact, too."""
    bits, groups, group = codes_of
    random = torch.Generator().manual_seed(seed)
    x = torch.randint(-127, 128, (rows, groups, group), generator=random)
    x[:, :, 0] = 127
    codes = torch.randint(0, 2**bits, (outputs, groups * group), dtype=torch.uint8, generator=random)
    zeros = torch.rand(outputs, groups, generator=random).mul(2 ** (bits + 1)).sub(2**bits // 2).half()
    zeros = zeros.round() if whole else zeros
    zeros = zeros if zero is None else torch.full_like(zeros, zero)
    scales = torch.rand(outputs, groups, generator=random).half()
    bias = torch.randn(outputs, generator=random).to(dtype)
    grouped = codes.view(outputs, groups, group).double()
    weight = ((grouped - zeros[:, :, None].double()) * scales[:, :, None].double()).flatten(1)
    expected = x.flatten(1).double() @ weight.T + bias.double()
    panels = to_panels(codes if bits == 8 else pack_halves(codes))
    table = torch.full((1, 1, 16), zero, dtype=torch.float16) if zero is not None else by_panel(zeros)
    stored = _core.Weight(panels, outputs, groups * group, bias, by_panel(scales), table)
    y = torch.full((rows, outputs), torch.nan)
    _core.linear(POOL, x.flatten(1).to(dtype), stored, y)
    largest = float((x.flatten(1).abs().double() @ weight.abs().T).max()) if rows else 0.0
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-6 * largest)  # sums of groups may cancel out
    matrix = Matrix(panels, outputs, groups * group, by_panel(scales), table)
    torch.testing.assert_close(matrix.rows(torch.float32).double(), weight)


@per_example
@given(
    rows=st.integers(0, 20) | st.integers(250, 300),
    outputs=st.integers(1, 90) | st.integers(500, 600),
    groups=st.integers(1, 6),
    bits=st.sampled_from([4, 8]),
    step=st.sampled_from(sorted(STEPS)),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
)
def test_codes_with_what_follows(
    instruction_set: str, rows: int, outputs: int, groups: int, bits: int, step: str, dtype: torch.dtype, seed: int
) -> None:
    """However the product is cut, sums are those of the product alone, and rounded once."""
    random = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 2**bits, (outputs, groups * 32), dtype=torch.uint8, generator=random)
    tables = [by_panel(torch.rand(outputs, groups, generator=random).half()) for _ in range(2)]
    x, bias, other = (
        torch.randn(*shape, generator=random).to(dtype) for shape in ((rows, groups * 32), (outputs,), (rows, outputs))
    )
    panels = to_panels(codes if bits == 8 else pack_halves(codes))
    weight = _core.Weight(panels, outputs, groups * 32, bias, *tables)
    sums, y = torch.full((rows, outputs), torch.nan), torch.full_like(other, torch.nan)
    _core.linear(POOL, x, weight, sums)
    _core.linear_then(POOL, x, weight, step, other if step in ("plus", "times") else None, y)
    tolerance = 2**-8 if dtype == torch.bfloat16 else 1e-5
    expected = STEPS[step](sums.double(), other.double())
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=1e-6)


@pytest.mark.parametrize(
    ("bits", "groups", "group"),
    [*((bits, 9, group) for bits in (4, 8) for group in (16, 32, 64, 128, 256)), (8, 1, 448), (8, 1, 4160)],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_of_codes_does_not_depend_on_the_others(
    instruction_set: str, dtype: torch.dtype, group: int, groups: int, bits: int
) -> None:
    outputs, inputs = 90, groups * group
    random = torch.Generator().manual_seed(group + bits)
    codes = torch.randint(0, 2**bits, (outputs, inputs), dtype=torch.uint8, generator=random)
    tables = [by_panel(torch.rand(outputs, groups, generator=random).half()) for _ in range(2)]
    bias = torch.randn(outputs, generator=random).to(dtype)
    panels = to_panels(codes if bits == 8 else pack_halves(codes))
    weight = _core.Weight(panels, outputs, inputs, bias, *tables)
    x = torch.randn(300, inputs, generator=random).to(dtype)

    def product(rows: Tensor) -> Tensor:
        y = torch.full((len(rows), outputs), torch.nan)
        _core.linear(POOL, rows.contiguous(), weight, y)
        return y

    together = product(x)
    for rows in (1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 64, 129, 200):
        assert torch.equal(product(x[:rows]), together[:rows])
        assert torch.equal(product(x[-rows:]), together[-rows:])


def test_codes_of_rows_without_a_value(instruction_set: str) -> None:
    codes, table = torch.full((16, 32), 7, dtype=torch.uint8), torch.ones(16, 1)
    weight = _core.Weight(to_panels(codes), 16, 32, None, by_panel(table.half()), by_panel(table.half()))
    y = torch.full((1, 16), torch.nan)
    _core.linear(POOL, torch.zeros(1, 32), weight, y)
    assert torch.equal(y, torch.zeros(1, 16))


def test_one_pool_serves_several_threads() -> None:
    x, weight = torch.randn(5, 256), torch.randn(4000, 256)
    expected = linear(x, weight, None)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: linear(x, weight, None), range(40)))
    assert all(torch.equal(result, expected) for result in results)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_any_number_of_threads_gives_the_same(threads: int) -> None:
    x, weight = torch.randn(3, 128), torch.randn(3001, 128)
    assert torch.equal(linear(x, weight, None, _core.ThreadPool(threads)), linear(x, weight, None))


def test_a_pool_needs_a_thread() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        _core.ThreadPool(0)


def test_unknown_instruction_set() -> None:
    with pytest.raises(ValueError, match="no kernels 'mmx'"):
        _core.select_instruction_set("mmx")


def may_use_amx() -> bool:
    arch_prctl, request, tile_data = 158, 0x1023, 18  # of x86-64, as Linux's headers number them
    return bool(ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0)


def test_the_kernels_are_the_best_that_the_processor_has() -> None:
    sets = _core.instruction_sets()
    assert sets[-1] == "plain"
    features = cpu_features()
    assert ("avx2" in sets) == ({"avx2", "fma"} <= features)
    assert ("avx512_vnni" in sets) == ({"avx512bw", "avx512_vnni"} <= features)
    assert ("avx512_bf16" in sets) == ({"avx512bw", "avx512_vnni", "avx512_bf16"} <= features)
    amx = {"amx_tile", "amx_bf16", "amx_int8"}
    assert ("amx" in sets) == ("avx512_bf16" in sets and amx <= features and may_use_amx())
    assert ("avx2_vnni" in sets) == ({"avx2", "fma", "avx_vnni"} <= features)


def test_a_processor_without_avx2_is_called_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(_core, "instruction_sets", lambda: ["avx2", "plain"])
    assert slowness() is None
    monkeypatch.setattr(_core, "instruction_sets", lambda: ["plain"])
    assert "no AVX2" in (slowness() or "")


class Cache:
    """A KV cache with NaN wherever nothing was written."""

    def __init__(self, pages: int, page_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
        layout = KVLayout(2, page_size, kv_heads, head_dim, name_of(dtype))
        self.pool = PagePool.create(f"test-kernels-{uuid.uuid4().hex[:12]}", pages, layout.page_bytes)
        self.kv = KVCache(self.pool, layout)
        torch.frombuffer(self.pool.data(), dtype=dtype).fill_(torch.nan)

    def __enter__(self) -> KVCache:
        return self.kv

    def __exit__(self, *args: object) -> None:
        self.pool.close()
        self.pool.unlink()


def check_attention(
    lengths: list[tuple[int, int]],
    page_size: int,
    heads: tuple[int, int],
    head_dim: int,
    dtype: torch.dtype,
    seed: int,
    scale: float = 0.2,
    tolerance: float | None = None,
    rules: AttentionRules = PLAIN,
) -> None:
    """Sequences of (past, new) tokens in one batch, over pages in random order."""
    random = torch.Generator().manual_seed(seed)
    q_heads, kv_heads = heads
    counts = [-(-(past + new) // page_size) for past, new in lengths]
    order = torch.randperm(sum(counts) + 1, generator=random).tolist()
    with Cache(sum(counts) + 1, page_size, kv_heads, head_dim, dtype) as kv:
        spans, expected, new_rows = [], [], []
        for (past, new), count in zip(lengths, counts, strict=True):
            pages, order = order[:count], order[count:]
            q, k, v = (
                torch.randn(rows, width, head_dim, generator=random).to(dtype)
                for rows, width in ((new, q_heads), (past + new, kv_heads), (past + new, kv_heads))
            )
            table, index = torch.tensor(pages), torch.arange(past)
            kv.k(1)[table[index // page_size], index % page_size] = k[:past]
            kv.v(1)[table[index // page_size], index % page_size] = v[:past]
            spans.append(Span(pages, past, past + new))
            expected.append(dense(q.double(), k.double(), v.double(), scale, None, rules))
            new_rows.append((q, k[past:], v[past:]))
        q, k, v = (torch.cat(parts) for parts in zip(*new_rows, strict=True))
        attention = CPU.kernels.attention(RaggedBatch.build(spans, page_size), kv)
        out = attention.attend(q, k, v, 1, scale, rules)
        assert out.dtype == dtype
        tolerance = tolerance or TOLERANCE[dtype]
        torch.testing.assert_close(out.double(), torch.cat(expected), rtol=tolerance, atol=tolerance)
        assert kv.k(0).isnan().all()
        assert kv.v(0).isnan().all()


@per_example
@given(
    lengths=st.lists(st.tuples(st.integers(0, 150), st.integers(1, 90)), min_size=1, max_size=4),
    page_size=st.sampled_from([1, 5, 16, 64]),
    heads=st.sampled_from([(4, 4), (6, 2), (7, 1), (14, 2), (80, 1)]),
    head_dim=st.sampled_from([32, 40, 64, 80, 96, 128]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
    window=st.none() | st.integers(1, 250),
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
) -> None:
    check_attention(lengths, page_size, heads, head_dim, dtype, seed, rules=AttentionRules(window))


@per_example
@given(
    lengths=st.lists(st.tuples(st.integers(0, 150), st.integers(1, 90)), min_size=1, max_size=3),
    heads=st.sampled_from([(4, 4), (6, 2), (14, 2)]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
    window=st.none() | st.integers(1, 100),
    chunk=st.none() | st.integers(1, 200),
    cap=st.none() | st.sampled_from([0.5, 3.0, 50.0]),
    sinks=st.none() | st.sampled_from([-3.0, 0.0, 5.0]),
)
@example([(2100, 1), (1020, 40)], (6, 2), torch.float32, 0, None, None, 3.0, 4.0)  # several parts
@example([(2100, 1), (1020, 40)], (6, 2), torch.float32, 0, None, 1030, None, 1.0)
def test_caps_sinks_and_chunks(
    instruction_set: str,
    lengths: list[tuple[int, int]],
    heads: tuple[int, int],
    dtype: torch.dtype,
    seed: int,
    window: int | None,
    chunk: int | None,
    cap: float | None,
    sinks: float | None,
) -> None:
    of_heads = None if sinks is None else sinks + torch.arange(heads[0]) / 4
    rules = AttentionRules(window, chunk, cap, of_heads)
    check_attention(lengths, 16, heads, 40, dtype, seed, rules=rules)


def test_a_sink_far_above_all_scores_leaves_nothing(instruction_set: str) -> None:
    sinks = torch.tensor([200.0, -200.0])
    check_attention([(30, 5)], 16, (2, 2), 16, torch.float32, 0, rules=AttentionRules(sinks=sinks))


@pytest.mark.parametrize("head_dim", [1, 2, 7, 16, 72, 256])
@pytest.mark.parametrize("dtype", DTYPES)
def test_head_sizes(instruction_set: str, head_dim: int, dtype: torch.dtype) -> None:
    check_attention([(70, 3), (0, 20)], 16, (4, 2), head_dim, dtype, head_dim)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_contexts_are_split_among_threads(instruction_set: str, dtype: torch.dtype) -> None:
    """Parts of the keys, some of which the first tokens of a chunk do not see at all, and decode beside them."""
    check_attention([(5000, 1), (1020, 30), (2100, 1), (3, 2)], 16, (4, 2), 64, dtype, 1)


@pytest.mark.parametrize("window", [1, 64, 1000, 1500])
@pytest.mark.parametrize("dtype", DTYPES)
def test_windows_of_long_contexts(instruction_set: str, dtype: torch.dtype, window: int) -> None:
    check_attention(
        [(5000, 1), (1020, 30), (2100, 100), (3, 2)], 16, (4, 2), 64, dtype, 1, rules=AttentionRules(window)
    )


def test_large_scores_do_not_overflow(instruction_set: str) -> None:
    check_attention([(200, 20)], 16, (4, 2), 64, torch.float32, 2, scale=50.0, tolerance=1e-3)


def test_other_types_take_the_torch_path() -> None:
    check_attention([(20, 3), (0, 7)], 16, (4, 2), 32, torch.float16, 3)


GOOD: dict[str, Any] = {
    "qo_indptr": [0, 2, 3],
    "kv_page_indptr": [0, 1, 3],
    "kv_page_indices": [0, 1, 2],
    "kv_lens": [4, 5],
    "slots": [2, 3, 8],
    "wanted_indptr": [0, 0, 1],
}


@pytest.mark.parametrize(
    "change",
    [
        {"qo_indptr": [0, 2]},
        {"qo_indptr": [0, 2, 4]},
        {"qo_indptr": [0, 4, 3]},
        {"qo_indptr": [1, 2, 3]},
        {"kv_page_indptr": [0, 1, 2]},
        {"kv_page_indices": [0, 1, 3]},
        {"kv_page_indices": [-1, 1, 2]},
        {"kv_lens": [5, 5]},
        {"kv_lens": [1, 5]},
        {"slots": [2, 3, 12]},
        {"slots": [2, -1, 8]},
        {"wanted_indptr": [0, 1]},
        {"wanted_indptr": [0, 3, 4]},
        {"wanted_indptr": [0, 0, 2]},
    ],
)
def test_a_bad_batch_is_refused(change: dict[str, list[int]]) -> None:
    data, q = torch.zeros(3, 1, 2, 4, 1, 8), torch.zeros(3, 2, 8)
    cache = _core.KvCache(data)

    def attend(arrays: dict[str, list[int]], layer: int = 0, window: int | None = None) -> None:
        tensors = {k: torch.tensor(v, dtype=torch.int64 if k == "slots" else torch.int32) for k, v in arrays.items()}
        _core.attend(thread_pool(), layer, _core.Batch(**tensors), cache, q, torch.empty_like(q), 1.0, window)

    attend(GOOD)
    with pytest.raises(ValueError, match="ragged batch"):
        attend(GOOD | change)
    with pytest.raises(ValueError, match="no layer 1"):
        attend(GOOD, layer=1)
    with pytest.raises(ValueError, match="a window of 0 keys"):
        attend(GOOD, window=0)
