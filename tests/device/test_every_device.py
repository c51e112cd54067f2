"""What every device must do: the processor, a stand-in for a GPU that computes late, and a GPU where there is one."""

import uuid
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from deferred import DeferredDevice
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from ipc_buffers import Memory, PagePool
from unifiedserve.attention import AttentionRules, CrossSpan, RaggedBatch, Span, cross_attention, reference
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device, LinearWeights, SequenceGroup
from unifiedserve.device.cuda import CudaDevice
from unifiedserve.memory.kv_cache import KVCache, KVLayout

HEAD_DIM, KV_HEADS, GROUPS, PAGE = 16, 2, 3, 4
PAGES = 64
NAMES = ["cpu", "stand-in", pytest.param("cuda", marks=pytest.mark.gpu)]

few = settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=NAMES)
def device(request: pytest.FixtureRequest) -> Device:
    if request.param == "cuda":
        return CudaDevice(EngineConfig())
    return CPU if request.param == "cpu" else DeferredDevice()


@pytest.fixture(scope="module")
def kv(device: Device) -> Iterator[KVCache]:
    """A cache of two layers that is NaN everywhere."""
    layout = KVLayout(2, PAGE, KV_HEADS, HEAD_DIM, "float32")
    pool = PagePool.create(f"test-device-{uuid.uuid4().hex[:12]}", PAGES, layout.page_bytes, device.place)
    yield KVCache(pool, layout, device=device)
    pool.close()
    pool.unlink()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, expected: Tensor, atol: float = 2e-5) -> None:
    torch.testing.assert_close(found.cpu(), expected, rtol=2e-5, atol=atol)


def test_memory_holds_what_was_computed_once_the_fence_returns(device: Device) -> None:
    memory = Memory.create(f"test-device-{uuid.uuid4().hex[:12]}", 64, device.place)
    try:
        view = device.view(memory).view(torch.float32)
        assert view.device == device.torch
        view.fill_(2.5).add_(device.upload(torch.arange(16.0)))
        device.fence()
        assert torch.frombuffer(bytearray(memory.read(0, 64)), dtype=torch.float32).tolist() == [
            2.5 + i for i in range(16)
        ]
        memory.write(0, bytes(64))
        assert view.sum().item() == 0
    finally:
        del view
        memory.close()
        memory.unlink()


def test_work_in_the_side_queue_is_done_once_it_was_waited_for(device: Device) -> None:
    side, there = device.side_queue(), device.upload(torch.arange(1000.0))
    found = side.start(lambda: there.square().add_(1), lambda: None).wait()
    assert found.cpu().tolist() == [i * i + 1.0 for i in range(1000)]
    side.close()


def test_uploads_are_copies_or_the_tensor_itself(device: Device) -> None:
    host = torch.arange(1000)
    there = device.upload(host)
    if device.torch != host.device:
        host.zero_()
    assert there.cpu().tolist() == list(range(1000))


@few
@given(
    lengths=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12)), min_size=1, max_size=4),
    window=st.none() | st.integers(1, 20),
    limited=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_attention_equals_plain_torch(
    device: Device, kv: KVCache, lengths: list[tuple[int, int]], window: int | None, limited: bool, seed: int
) -> None:
    """Over pages in any order; the first sequence's new tokens may all see each other."""
    order = iter(torch.randperm(PAGES, generator=torch.Generator().manual_seed(seed)).tolist())
    spans = []
    for number, (past, new) in enumerate(lengths):
        pages = [next(order) for _ in range(-(-(past + new) // PAGE))]
        limits = torch.full((new,), past + new) if limited and number == 0 else None
        spans.append(Span(pages, past, past + new, None, limits))
    batch = RaggedBatch.build(spans, PAGE)
    tokens = len(batch.slots)
    stored = random(PAGES, 2, 2, PAGE, KV_HEADS, HEAD_DIM, seed=seed % 1000)
    kv.pages.copy_(device.upload(stored))
    q, k, v = (
        random(tokens, heads, HEAD_DIM, seed=heads + i)
        for i, heads in enumerate((KV_HEADS * GROUPS, KV_HEADS, KV_HEADS))
    )
    out = device.kernels.attention(batch, kv).attend(*map(device.upload, (q, k, v)), 1, 0.3, AttentionRules(window))

    page, offset = batch.slots // PAGE, batch.slots % PAGE
    stored[page, 1, 0, offset], stored[page, 1, 1, offset] = k, v
    expected = torch.empty_like(q)
    reference.attend(q, expected, stored[:, 1, 0], stored[:, 1, 1], batch.sequences, 0.3, AttentionRules(window))
    close(out, expected)
    device.fence()
    assert torch.equal(kv.pages.cpu(), stored)


def test_attention_across_equals_plain_torch(device: Device, kv: KVCache) -> None:
    cross = [CrossSpan(0, 2, torch.tensor([5, 1, 30])), CrossSpan(2, 3, torch.tensor([7]))]
    batch = RaggedBatch.build([Span([0, 1], 0, 4, cross=cross)], PAGE)
    q, rows = random(3, KV_HEADS * GROUPS, HEAD_DIM), random(40, 2, KV_HEADS, HEAD_DIM, seed=1)
    there = device.upload(rows)
    out = device.kernels.attention(batch, kv).attend_across(device.upload(q), there[:, 0], there[:, 1], 0.3)
    close(out, cross_attention(q, rows[:, 0], rows[:, 1], cross, 0.3))


def test_logits_are_float32(device: Device) -> None:
    head = torch.nn.Linear(24, 50)
    expected = head(random(3, 24)).detach()
    head.weight, head.bias = (
        torch.nn.Parameter(device.upload(part.detach()), False) for part in (head.weight, head.bias)
    )
    logits = device.kernels.head(head)(device.upload(random(3, 24)))
    assert logits.dtype == torch.float32
    close(logits, expected)


def test_vision_attends_within_sequences(device: Device) -> None:
    groups, heads = [SequenceGroup(0, 2, 5), SequenceGroup(10, 3, 4)], 2
    qkv, angles = random(22, 3 * heads * HEAD_DIM), random(22, HEAD_DIM // 2, seed=1)
    attended = device.kernels.vision.attend(
        device.upload(qkv), heads, device.upload(angles.cos()), device.upload(angles.sin()), groups
    )
    q, k, v = qkv.view(22, 3, heads, HEAD_DIM).unbind(1)
    first, second = angles.cos().repeat(1, 2)[:, None], angles.sin().repeat(1, 2)[:, None]
    q, k = (
        part * first + torch.cat([-part[..., HEAD_DIM // 2 :], part[..., : HEAD_DIM // 2]], -1) * second
        for part in (q, k)
    )
    of_row = torch.tensor([0] * 5 + [1] * 5 + [2] * 4 + [3] * 4 + [4] * 4)
    expected = functional.scaled_dot_product_attention(
        *(part.transpose(0, 1) for part in (q, k, v)), attn_mask=of_row[:, None] == of_row
    )
    close(attended, expected.transpose(0, 1).flatten(1))


def test_vision_norms_and_products(device: Device) -> None:
    kernels, x = device.kernels.vision, random(7, 32)
    layer = LinearWeights(random(24, 32, seed=1), random(24, seed=2))
    there = LinearWeights(device.upload(layer.weight), device.upload(random(24, seed=2)))
    product, other = functional.linear(x, *layer), random(7, 24, seed=3)
    close(kernels.linear(device.upload(x), there), product)
    close(kernels.linear(device.upload(x), there, "gelu"), functional.gelu(product))
    close(kernels.linear(device.upload(x), there, "silu"), functional.silu(product))
    close(kernels.linear_plus(device.upload(x), there, device.upload(other)), product + other)
    norm = SimpleNamespace(weight=device.upload(random(32, seed=4)), variance_epsilon=1e-6)
    close(kernels.norm(device.upload(x), norm), functional.rms_norm(x, (32,), random(32, seed=4), 1e-6))


def test_vision_norms_are_rounded_once(device: Device) -> None:
    x, weight = random(50, 320).bfloat16(), random(320, seed=1).bfloat16()
    norm = SimpleNamespace(weight=device.upload(weight), variance_epsilon=1e-6)
    found = device.kernels.vision.norm(device.upload(x), norm)
    assert found.dtype == torch.bfloat16
    exact = functional.rms_norm(x.float(), (320,), weight.float(), 1e-6)
    torch.testing.assert_close(found.cpu().float(), exact, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("inner", [24, 27])
def test_vision_gates(device: Device, inner: int) -> None:
    x, summand = random(7, 32), random(7, 32, seed=9)
    shapes = {"gate_proj": (inner, 32), "up_proj": (inner, 32), "down_proj": (32, inner)}
    layers = {
        name: LinearWeights(random(*shape, seed=seed), random(shape[0], seed=-seed))
        for seed, (name, shape) in enumerate(shapes.items(), 1)
    }
    gate, up, down = layers.values()
    inside = functional.silu(functional.linear(x, *gate)) * functional.linear(x, *up)
    uploaded = {name: LinearWeights(*map(device.upload, layer)) for name, layer in layers.items()}
    stored = device.upload(functional.pad(down.weight, (0, 5)))[:, :inner]  # as in memory/weights.py
    spaced = uploaded | {"down_proj": uploaded["down_proj"]._replace(weight=stored)}
    for there in (uploaded, spaced):
        run = device.kernels.vision.gated(SimpleNamespace(**there))
        expected = functional.linear(inside, *down) + summand
        close(run(device.upload(x), device.upload(summand)), expected, atol=1e-6 * float(expected.abs().max()))


def test_dtypes_are_ones_that_it_computes_with(device: Device) -> None:
    assert device.best_dtype() in ("float32", "bfloat16")
    device.check(device.best_dtype())
    device.check("float32")
