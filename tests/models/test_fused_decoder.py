"""The fused layers equal the transformers modules whose weights they take, for every structure that they cover."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from model_loop import make_adapter
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve import _core
from unifiedserve.attention import RaggedBatch
from unifiedserve.attention.base import Span
from unifiedserve.device import CPU, back_to_back
from unifiedserve.device.cpu.decoder import FusedDecoder
from unifiedserve.device.cpu.dtypes import KERNEL_DTYPES
from unifiedserve.device.cpu.head import Head
from unifiedserve.device.cpu.matrix import Matrix, joined
from unifiedserve.device.cpu.panels import by_panel, to_panels
from unifiedserve.device.llama import fits
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of
from unifiedserve.models.hub import load_transformers

SIZES = {
    "vocab_size": 100,
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
STRUCTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama with biases": {"attention_bias": True, "mlp_bias": True},
    "qwen2": {},
    "qwen3": {"head_dim": 32},
}


def make_model(structure: str, **changes: Any) -> Any:
    config = load_transformers().AutoConfig.for_model(
        structure.split()[0], **SIZES, **STRUCTURES.get(structure, {}), **changes
    )
    torch.manual_seed(0)
    model = load_transformers().AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm" in name), std=0.2)
    return model.eval().requires_grad_(False)


@pytest.fixture
def pool_name() -> str:
    return f"test-fused-{uuid.uuid4().hex[:12]}"


def make_cache(model: Any, name: str, dtype: torch.dtype = torch.float32, pages: int = 40) -> Iterator[KVCache]:
    layout = KVLayout.of(model.config, 8, name_of(dtype))
    pool = PagePool.create(name, pages, layout.page_bytes)
    yield KVCache(pool, layout)
    pool.close()
    pool.unlink()


def run(decoder: FusedDecoder, kv: KVCache, embeds: list[Tensor], chunks: list[list[tuple[int, int]]]) -> list[Tensor]:
    """Hidden states of sequences [n, hidden], whose tokens go through in steps of (start, stop) for each."""
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1)).tolist()
    tables = [order[10 * i : 10 * i + 10] for i in range(len(embeds))]
    hidden: list[list[Tensor]] = [[] for _ in embeds]
    for step in chunks:
        running = [i for i, (start, stop) in enumerate(step) if stop > start]
        batch = RaggedBatch.build([Span(tables[i], *step[i]) for i in running], kv.page_size)
        rows = torch.cat([embeds[i][slice(*step[i])] for i in running])
        positions = torch.cat([torch.arange(*step[i]) for i in running])
        parts = decoder(rows, positions[None], batch, kv).split([step[i][1] - step[i][0] for i in running])
        for i, part in zip(running, parts, strict=True):
            hidden[i].append(part)
    return [torch.cat(parts) for parts in hidden]


# A chunk of one prompt beside decode tokens and beside another's end.
MIXED = [[(0, 30), (0, 1)], [(30, 31), (1, 20)], [(31, 32), (20, 21)], [(32, 60), (21, 22)]]
LENGTHS = [60, 22]


@torch.inference_mode()
@pytest.mark.parametrize("structure", STRUCTURES)
def test_equals_transformers(structure: str, pool_name: str) -> None:
    model = make_model(structure)
    decoder = FusedDecoder(model.model, torch.float32)
    ids = [torch.randint(0, 100, (n,), generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
    for kv in make_cache(model, pool_name):
        hidden = run(decoder, kv, [model.model.embed_tokens(each) for each in ids], MIXED)
    for each, ours in zip(ids, hidden, strict=True):
        expected = model.model(input_ids=each[None]).last_hidden_state[0]
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(Head(model.lm_head)(ours), model.lm_head(expected), rtol=1e-4, atol=1e-3)


@torch.inference_mode()
@pytest.mark.parametrize("wanted", [(1, 0, 1), (0, 0, 0), (5, 20, 0), (0, 7, 1)])
def test_wanted_rows_alone(wanted: tuple[int, ...], pool_name: str) -> None:
    """The last layer does no other rows, and their keys and values are in the cache all the same."""
    model = make_model("qwen2")
    decoder = FusedDecoder(model.model, torch.float32)
    lengths = [30, 20, 1]
    ids = [torch.randint(0, 100, (n + 1,), generator=torch.Generator().manual_seed(n)) for n in lengths]
    expected = [model.model(input_ids=each[None]).last_hidden_state[0] for each in ids]
    tables = torch.randperm(40, generator=torch.Generator().manual_seed(1)).view(4, 10).tolist()

    def step(kv: KVCache, starts: list[int], stops: list[int], wanted: tuple[int, ...]) -> Tensor:
        spans = [Span(*each) for each in zip(tables, starts, stops, wanted, strict=False)]
        rows = torch.cat([each[start:stop] for each, start, stop in zip(ids, starts, stops, strict=True)])
        positions = torch.cat([torch.arange(start, stop) for start, stop in zip(starts, stops, strict=True)])
        return decoder(model.model.embed_tokens(rows), positions[None], RaggedBatch.build(spans, kv.page_size), kv)

    ends = [n + 1 for n in lengths]
    for kv in make_cache(model, pool_name):
        first, second = step(kv, [0, 0, 0], lengths, wanted), step(kv, lengths, ends, (1, 1, 1))
    rows = [each[n - count : n] for each, n, count in zip(expected, lengths, wanted, strict=True)]
    torch.testing.assert_close(first, torch.cat(rows), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(second, torch.stack([each[-1] for each in expected]), rtol=1e-4, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("instruction_set", _core.instruction_sets())
@pytest.mark.parametrize("structure", STRUCTURES)
def test_bfloat16(structure: str, instruction_set: str, pool_name: str) -> None:
    """No further from float32 with the same weights than transformers' own bfloat16 is."""
    half = make_model(structure).to(torch.bfloat16)
    exact = make_model(structure)
    exact.load_state_dict(half.state_dict())
    ids = torch.randint(0, 100, (60,), generator=torch.Generator().manual_seed(5))
    expected = exact.model(input_ids=ids[None]).last_hidden_state[0]
    theirs = half.model(input_ids=ids[None]).last_hidden_state[0]
    before = _core.instruction_set()
    _core.select_instruction_set(instruction_set)
    try:
        decoder = FusedDecoder(half.model, torch.bfloat16)
        for kv in make_cache(half, pool_name, torch.bfloat16):
            (ours,) = run(decoder, kv, [half.model.embed_tokens(ids)], [[(0, 25)], [(25, 26)], [(26, 60)]])
    finally:
        _core.select_instruction_set(before)
    assert ours.dtype == torch.bfloat16
    assert (ours.float() - expected).norm() <= 1.2 * (theirs.float() - expected).norm()


@torch.inference_mode()
@pytest.mark.parametrize("instruction_set", _core.instruction_sets())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("coded", [False, True], ids=["values", "codes"])
@pytest.mark.parametrize("structure", ["qwen2", "qwen3"])
def test_rows_of_a_step_are_bit_by_bit_those_of_steps_of_their_own(
    structure: str, coded: bool, dtype: torch.dtype, instruction_set: str, pool_name: str
) -> None:
    """Drafts rely on it. On the way the context comes to be attended to in one part more."""
    model = make_model(structure).to(dtype)
    decoder, head = FusedDecoder(model.model, dtype), Head(model.lm_head)
    embeds = model.model.embed_tokens(torch.randint(0, 100, (1030,), generator=torch.Generator().manual_seed(1)))
    pages = torch.randperm(130, generator=torch.Generator().manual_seed(2)).tolist()

    def logits(kv: KVCache, start: int, stop: int) -> Tensor:
        batch = RaggedBatch.build([Span(pages, start, stop)], kv.page_size)
        return head(decoder(embeds[start:stop], torch.arange(start, stop)[None], batch, kv)).clone()

    before = _core.instruction_set()
    _core.select_instruction_set(instruction_set)
    try:
        for kv in make_cache(model, pool_name, torch.int8 if coded else dtype, pages=130):
            logits(kv, 0, 1020)
            alone = torch.cat([logits(kv, place, place + 1) for place in range(1020, 1030)])
            for rows in (2, 3, 5, 8, 10):
                assert torch.equal(logits(kv, 1020, 1020 + rows), alone[:rows])
    finally:
        _core.select_instruction_set(before)


def test_what_does_not_fit() -> None:
    assert fits(make_model("qwen2").model, torch.float32, KERNEL_DTYPES)
    assert not fits(make_model("qwen2").model, torch.float16, KERNEL_DTYPES)
    assert not fits(make_model("qwen2", hidden_act="gelu").model, torch.float32, KERNEL_DTYPES)
    assert not fits(make_model("gemma").model, torch.float32, KERNEL_DTYPES)
    sliding = make_model("qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=1)
    assert not fits(sliding.model, torch.float32, KERNEL_DTYPES)
    assert CPU.kernels.runner(sliding.model, torch.float32) is None


def test_another_models_cache_is_refused(pool_name: str) -> None:
    model, other = make_model("llama"), make_model("llama", head_dim=8)
    embeds = model.model.embed_tokens(torch.arange(3))
    for kv in make_cache(other, pool_name):
        with pytest.raises(ValueError, match="another model's layout"):
            run(FusedDecoder(model.model, torch.float32), kv, [embeds], [[(0, 3)]])
    for kv in make_cache(model, pool_name, torch.float16):
        with pytest.raises(ValueError, match="another dtype"):
            run(FusedDecoder(model.model, torch.float32), kv, [embeds], [[(0, 3)]])


def test_fused_weights_are_views_of_the_arena(checkpoint: Any) -> None:
    adapter = make_adapter(checkpoint, torch.bfloat16)
    for layer in adapter.language_model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for modules in ([attention.q_proj, attention.k_proj, attention.v_proj], [mlp.gate_proj, mlp.up_proj]):
            parts = [module.matrix for module in modules]
            fused = joined(parts, torch.bfloat16)
            assert fused.panels.data_ptr() == parts[0].panels.data_ptr()
            assert torch.equal(fused.rows(torch.bfloat16), torch.cat([part.rows(torch.bfloat16) for part in parts]))


def test_matrices_that_do_not_fill_panels_are_joined_in_a_copy() -> None:
    parts = [torch.randn(outputs, 8) for outputs in (5, 16, 3)]
    assert torch.equal(joined([Matrix.of(part) for part in parts], torch.float32).rows(torch.float32), torch.cat(parts))


def coded(outputs: int, zero: float | None) -> Matrix:
    """A matrix of codes at random, whose zeros are all the same or not."""
    codes = torch.randint(0, 256, (outputs, 64), dtype=torch.uint8)
    scales = by_panel(torch.rand(outputs, 2).half())
    zeros = by_panel(torch.rand(outputs, 2).half()) if zero is None else torch.full((1, 1, 16), zero).half()
    return Matrix(to_panels(codes), outputs, 64, scales, zeros)


@pytest.mark.parametrize(
    ("zeros", "stay_codes"), [((None, None), True), ((128, 128), True), ((128, 16), False), ((128, None), False)]
)
def test_codes_are_joined_where_their_zeros_are_alike(zeros: tuple[float | None, ...], stay_codes: bool) -> None:
    parts = [coded(outputs, zero) for outputs, zero in zip((32, 5), zeros, strict=True)]
    whole = joined(parts, torch.float32)
    assert torch.equal(whole.rows(torch.float32), torch.cat([part.rows(torch.float32) for part in parts]))
    assert (whole.scales is not None) == stay_codes
    whole.native()


def test_scattered_weights_are_copied() -> None:
    tensors = [torch.randn(4, 8), torch.randn(2, 8)]
    assert torch.equal(back_to_back(tensors), torch.cat(tensors))
