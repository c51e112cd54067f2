"""Attention by FlashInfer is planned as it must be: a stand-in that computes from the plans equals plain torch."""

import inspect
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from paged_batches import Case, Sizes, random_case
from stand_in_flashinfer import DeferredDevice, StandIn
from torch import Tensor

from unifiedserve.attention import PLAIN, AttentionRules, CrossSpan, RaggedBatch
from unifiedserve.config import EngineConfig
from unifiedserve.device import Device
from unifiedserve.device.cuda import backends, flashinfer
from unifiedserve.device.operators import PlannedAttention
from unifiedserve.errors import ConfigError

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2}
SCALE = 0.11
PART = flashinfer.PART_KEYS


class Fallback:
    """An `Attention` that tells what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def of_batch(self, batch: RaggedBatch, groups: int) -> PlannedAttention:
        return self._asked(f"batch of {len(batch.kv_lens)}, {groups}")

    def of_spans(self, spans: Sequence[CrossSpan], groups: int) -> PlannedAttention:
        return self._asked(f"{len(spans)} spans, {groups}")

    def _asked(self, what: str) -> PlannedAttention:
        def attend(
            q: Tensor,
            keys: Tensor,
            values: Tensor,
            scale: float,
            rules: AttentionRules = PLAIN,
        ) -> Tensor:
            others = "" if rules == AttentionRules(rules.window) else f", {rules}"
            self.asked.append(f"{what}, {scale}, {rules.window}{others}")
            return q

        return attend


class Rig:
    """FlashInferAttention over the stand-in."""

    def __init__(self, workspace_bytes: int = 1 << 24) -> None:
        self.device, self.fallback = DeferredDevice(), Fallback()
        self.library = StandIn(self.device)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "flashinfer", self.library.module)
            patch.setattr(flashinfer, "WORKSPACE_BYTES", workspace_bytes)
            self.attention = flashinfer.FlashInferAttention(cast(Device, self.device), self.fallback)

    def step(self, case: Case, *windows: int | None, chosen: Sequence[int] = ()) -> list[Tensor]:
        """Run a step whose layers have such windows; what it returns is there once the device was waited for."""
        plan = self.attention.of_batch(case.batch(*chosen), case.q.shape[1] // case.keys.shape[2])
        q = torch.cat([case.q[case.rows(number)] for number in chosen]) if chosen else case.q
        return [plan(q, case.keys, case.values, SCALE, AttentionRules(window)) for window in windows]


def case_of(
    lengths: list[tuple[int, int]],
    sizes: Sizes,
    dtype: torch.dtype = torch.bfloat16,
    seed: int = 0,
    limited: bool = False,
) -> Case:
    return random_case(lengths, [limited] * len(lengths), sizes, dtype, torch.Generator().manual_seed(seed))


LENGTHS = st.lists(st.tuples(st.integers(0, 200), st.sampled_from([1, 1, 2, 40])), min_size=1, max_size=4)


@settings(max_examples=15)
@given(
    steps=st.lists(LENGTHS, min_size=1, max_size=2),
    heads=st.sampled_from([(2, 2), (6, 2), (4, 1), (20, 1)]),
    head_dim=st.sampled_from([64, 128]),
    page_size=st.sampled_from([1, 3, 16, 64]),
    windows=st.lists(st.none() | st.integers(1, 100), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float16, torch.bfloat16]),
    seed=st.integers(0, 2**32),
)
@example(  # decode over several parts beside prompts' chunks, then decode alone
    steps=[[(3 * PART, 1), (20, 1), (40, 30), (0, 1)], [(PART - 1, 1), (PART, 1)]],
    heads=(6, 2),
    head_dim=64,
    page_size=16,
    windows=[None, PART + 40, None],
    dtype=torch.bfloat16,
    seed=0,
)
def test_equals_plain_torch(
    steps: list[list[tuple[int, int]]],
    heads: tuple[int, int],
    head_dim: int,
    page_size: int,
    windows: list[int | None],
    dtype: torch.dtype,
    seed: int,
) -> None:
    """Steps follow each other before the device has done the first one's work."""
    rig, sizes = Rig(), Sizes(*heads, head_dim, page_size)
    cases = [case_of(lengths, sizes, dtype, seed) for lengths in steps]
    outputs = [rig.step(case, *windows) for case in cases]
    rig.device.fence()
    for case, layers in zip(cases, outputs, strict=True):
        for out, window in zip(layers, windows, strict=True):
            expected = case.expected(SCALE, AttentionRules(window))
            torch.testing.assert_close(out.float(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("cap", [0.5, 50.0])
def test_soft_caps(cap: float) -> None:
    rig, case = Rig(), case_of([(2 * PART, 1), (20, 40)], Sizes(6, 2, 64, 16))
    plan = rig.attention.of_batch(case.batch(), 3)
    layers = [
        (rules, plan(case.q, case.keys, case.values, SCALE, rules))
        for rules in (AttentionRules(90, cap=cap), AttentionRules(90))
    ]
    rig.device.fence()
    for rules, out in layers:
        torch.testing.assert_close(out.float(), case.expected(SCALE, rules), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("rules", [AttentionRules(chunk=8), AttentionRules(sinks=torch.zeros(6))])
def test_chunks_and_sinks_are_left_to_the_fallback(rules: AttentionRules) -> None:
    rig, case = Rig(), case_of([(20, 40)], Sizes(6, 2, 64, 16))
    rig.attention.of_batch(case.batch(), 3)(case.q, case.keys, case.values, SCALE, rules)
    assert rig.fallback.asked == [f"batch of 1, 3, {SCALE}, None, {rules}"]


def test_a_decode_tokens_result_does_not_depend_on_the_batch() -> None:
    rig = Rig()
    case = case_of([(2 * PART + 7, 1), (5, 1), (PART, 1), (30, 40)], Sizes(6, 2, 64, 16))
    (together,) = rig.step(case, None)
    alone = [rig.step(case, None, chosen=[number])[0] for number in range(3)]
    rig.device.fence()
    assert torch.equal(together[:3], torch.cat(alone))


def test_sequences_of_which_no_token_is_wanted() -> None:
    rig = Rig()
    case = case_of([(20, 1), (5, 3), (0, 4)], Sizes(2, 1, 64, 16))
    batch = case.batch()
    for indptr, rows in ([0, 1, 1, 5], [0, 4, 5, 6, 7]), ([0, 0, 3, 3], [1, 2, 3]), ([0, 0, 0, 0], []):
        fewer = RaggedBatch(**{**vars(batch), "qo_indptr": torch.tensor(indptr, dtype=torch.int32)})
        out = rig.attention.of_batch(fewer, 2)(case.q[rows], case.keys, case.values, SCALE)
        rig.device.fence()
        torch.testing.assert_close(out.float(), case.expected(SCALE)[rows], rtol=2e-2, atol=2e-2)


def test_a_plan_holds_for_all_layers_of_a_shape_and_wrappers_for_all_steps() -> None:
    rig = Rig()
    case = case_of([(20, 1), (0, 5)], Sizes(2, 1, 64, 16))
    for _ in range(3):
        rig.step(case, None, 8, None, 8, None)
    assert len(rig.library.plans) == 3 * 4
    assert len(rig.library.workspaces) == 4
    assert len({workspace.data_ptr() for workspace in rig.library.workspaces}) == 1


@pytest.mark.parametrize("heads", [2, 20])
def test_the_workspace_grows_with_the_contexts(heads: int) -> None:
    """So much at once that it seldom does."""
    rig = Rig(workspace_bytes=1 << 16)
    cases = [case_of([(parts * PART, 1)], Sizes(heads, 1, 64, 16)) for parts in range(1, 10)]
    outputs = [rig.step(case, None, PART + 40) for case in cases]
    rig.device.fence()
    for case, layers in zip(cases, outputs, strict=True):
        for out, window in zip(layers, (None, PART + 40), strict=True):
            torch.testing.assert_close(out.float(), case.expected(SCALE, AttentionRules(window)), rtol=2e-2, atol=2e-2)
    assert len({len(workspace) for workspace in rig.library.workspaces}) <= 4


@pytest.mark.parametrize(
    ("head_dim", "dtype", "limited"),
    [(64, torch.float32, False), (80, torch.bfloat16, False), (64, torch.bfloat16, True)],
    ids=["float32", "head size", "limits"],
)
def test_what_flashinfer_lacks_is_left_to_the_other_library(head_dim: int, dtype: torch.dtype, limited: bool) -> None:
    rig = Rig()
    case = case_of([(20, 1), (0, 5)], Sizes(4, 2, head_dim, 16), dtype, limited=limited)
    assert all(out is case.q for out in rig.step(case, None, 7))
    assert rig.fallback.asked == [f"batch of 2, 2, {SCALE}, None", f"batch of 2, 2, {SCALE}, 7"]
    assert not rig.library.plans


def test_attention_across_is_left_to_the_other_library() -> None:
    rig = Rig()
    case = case_of([(0, 5)], Sizes(4, 2, 64, 1))
    rig.attention.of_spans([CrossSpan(0, 5, torch.arange(3))], 2)(case.q, case.keys, case.values, SCALE)
    assert rig.fallback.asked == [f"1 spans, 2, {SCALE}, None"]


def test_the_backend_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    operators = pytest.importorskip("unifiedserve.device.triton.operators", reason="no Triton")
    device = DeferredDevice()
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    for name in "auto", "triton":
        assert isinstance(backends.attention_backend(name, cast(Device, device)), operators.TritonAttention)
    with pytest.raises(ConfigError, match=r"--attention-backend flashinfer: .*pip install flashinfer-python==0\.6\.13"):
        backends.attention_backend("flashinfer", cast(Device, device))
    monkeypatch.setitem(sys.modules, "flashinfer", StandIn(device).module)
    chosen = backends.attention_backend("flashinfer", cast(Device, device))
    assert isinstance(chosen, flashinfer.FlashInferAttention)


@pytest.mark.parametrize("method", ["__init__", "plan", "run"])
def test_the_stand_in_has_the_originals_signatures(method: str) -> None:
    original = pytest.importorskip("flashinfer", reason="no FlashInfer").BatchPrefillWithPagedKVCacheWrapper
    wrapper = StandIn(DeferredDevice()).module.BatchPrefillWithPagedKVCacheWrapper
    assert parameters(getattr(wrapper, method)) == parameters(getattr(original, method))


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 300])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_equals_triton_on_a_gpu(head_dim: int, window: int | None) -> None:
    pytest.importorskip("flashinfer", reason="no FlashInfer")
    device = import_module("unifiedserve.device.cuda").CudaDevice(EngineConfig())
    case = case_of([(3 * PART + 5, 1), (40, 1), (2 * PART, 300), (0, 70)], Sizes(14, 2, head_dim, 16))
    q = case.q.to(device.torch)
    pages = torch.stack([case.keys, case.values], dim=1).to(device.torch)
    batch = case.batch()
    out, expected = (
        backends.attention_backend(name, device).of_batch(batch, 7)(
            q, pages[:, 0], pages[:, 1], SCALE, AttentionRules(window)
        )
        for name in ("flashinfer", "triton")
    )
    torch.testing.assert_close(out, expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(out.float().cpu(), case.expected(SCALE, AttentionRules(window)), rtol=2e-2, atol=2e-2)
