"""The vision tower against transformers' on any mix of media, and the stage that feeds it from pages."""

import copy
import itertools
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_media import ROW_BYTES, Units, pixels, plan
from hypothesis import given, settings
from hypothesis import strategies as st
from model_loop import make_adapter
from reference import Reference, transformers
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve.device import CPU
from unifiedserve.device.cpu import linear
from unifiedserve.device.cpu.modules import in_panels
from unifiedserve.device.cpu.vision import CpuVision
from unifiedserve.errors import ConfigError
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.memory.status import Status
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import Embeddings, Patches, PrefillRequest
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.families.qwen2_5_vl import vision_tower
from unifiedserve.models.families.qwen2_5_vl.rules import CLIP_MEAN, CLIP_STD, MediaRules
from unifiedserve.models.families.qwen2_5_vl.vision_tower import VisionTower
from unifiedserve.models.processor import MediaPlan
from unifiedserve.models.tiny import make_checkpoint
from unifiedserve.scheduling import EncodeWork
from unifiedserve.worker.language.encode import EncodeStage
from unifiedserve.worker.language.patch_pages import PatchPages
from unifiedserve.worker.language.prompt_table import PromptTable


def theirs(tower: Any, patches: Tensor, units: Units) -> Tensor:
    """transformers' tower on pixels normalised as its processors do it."""
    mean, std = (torch.tensor(values).repeat_interleave(ROW_BYTES // 3) for values in (CLIP_MEAN, CLIP_STD))
    grids = torch.tensor([(count, *plan.grid[1:]) for plan, count in units])
    with torch.inference_mode():
        normalised = (patches.float() - mean * 255) / (std * 255)
        tokens: Tensor = tower(normalised.to(tower.dtype), grid_thw=grids).pooler_output
    return tokens


def alone(adapter: LanguageAdapter, patches: Tensor, units: Units) -> Tensor:
    parts, row = [], 0
    for each, count in units:
        for _ in range(count):
            parts.append(adapter.encode(patches[row : row + each.patches_per_unit], [(each, 1)]))
            row += each.patches_per_unit
    return torch.cat(parts)


media = st.builds(
    lambda kind, rows, columns, units: (plan(kind, rows, columns, units), units),
    st.sampled_from(["image", "video"]),
    st.integers(1, 11),
    st.integers(1, 11),
    st.integers(1, 3),
)

CASES: dict[str, Units] = {
    "one token": [(plan("image", 1, 1), 1)],
    "one whole window": [(plan("image", 4, 4), 1)],
    "windows cut at both edges": [(plan("image", 6, 10), 1)],
    "a row of tokens": [(plan("image", 1, 30), 1)],
    "a video": [(plan("video", 6, 10, 5), 5)],
    "the end of a video": [(plan("video", 5, 7, 9), 2)],
    "equal and other grids in turn": [
        (plan("video", 6, 5, 2), 2),
        (plan("image", 9, 3), 1),
        (plan("video", 6, 5, 2), 1),
        (plan("image", 5, 6), 1),
        (plan("image", 8, 8), 1),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_equals_transformers(name: str, adapter: LanguageAdapter, hf: Reference) -> None:
    patches = pixels(CASES[name])
    tokens = adapter.encode(patches, CASES[name])
    torch.testing.assert_close(tokens, theirs(hf.model.model.visual, patches, CASES[name]), rtol=1e-4, atol=2e-5)


@settings(max_examples=30)
@given(units=st.lists(media, min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_any_mix_equals_transformers(units: Units, seed: int, adapter: LanguageAdapter, hf: Reference) -> None:
    patches = pixels(units, seed)
    tokens = adapter.encode(patches, units)
    torch.testing.assert_close(tokens, theirs(hf.model.model.visual, patches, units), rtol=1e-4, atol=2e-5)


@settings(max_examples=30)
@given(units=st.lists(media, min_size=2, max_size=5), seed=st.integers(0, 1000))
def test_a_unit_is_the_same_in_any_company(units: Units, seed: int, adapter: LanguageAdapter) -> None:
    patches = pixels(units, seed)
    assert torch.equal(adapter.encode(patches, units), alone(adapter, patches, units))


def test_patches_are_left_as_they_are(adapter: LanguageAdapter) -> None:
    patches = pixels(CASES["a video"])
    before = patches.clone()
    adapter.encode(patches, CASES["a video"])
    assert torch.equal(patches, before)


def test_images_and_videos_with_means_of_their_own(hf: Reference) -> None:
    image, video = (
        MediaRules(1, 1 << 30, image_mean=(mean,) * 3, image_std=(std,) * 3).normalisation()
        for mean, std in ((0.5, 0.5), (0.3, 0.2))
    )
    tower = VisionTower(hf.model.model.visual, {"image": image, "video": video}, CPU)
    units: Units = [(plan("image", 3, 5), 1), (plan("video", 3, 5, 2), 2), (plan("image", 2, 2), 1)]
    patches = pixels(units)
    kinds = torch.tensor([plan.kind == "video" for plan, n in units for _ in range(n * plan.patches_per_unit)])
    mean, std = (torch.where(kinds[:, None], v, i) for i, v in zip(image, video, strict=True))
    grids = torch.tensor([(count, *plan.grid[1:]) for plan, count in units])
    expected = hf.model.model.visual((patches - mean) / std, grid_thw=grids).pooler_output
    torch.testing.assert_close(tower(patches, units), expected, rtol=1e-4, atol=2e-5)


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wider and deeper than the tiny checkpoint, for errors to add up."""
    vision = {"depth": 8, "hidden_size": 256, "intermediate_size": 684, "fullatt_block_indexes": [3, 7]}
    return make_checkpoint(tmp_path_factory.mktemp("deep"), sizes={"vision_config": vision})


@pytest.mark.parametrize("name", ["windows cut at both edges", "a video", "equal and other grids in turn"])
def test_bfloat16_is_as_close_to_the_truth_as_transformers(name: str, deep: Path) -> None:
    units, patches = CASES[name], pixels(CASES[name])
    load = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained
    truth = theirs(load(deep, dtype=torch.float32).model.visual, patches, units)
    rounded = theirs(load(deep, dtype=torch.bfloat16).model.visual, patches, units)
    ours = make_adapter(deep, torch.bfloat16).encode(patches, units)
    assert ours.dtype == torch.bfloat16
    assert (ours - truth).norm() <= 1.1 * (rounded - truth).norm()


@pytest.mark.parametrize("name", ["windows cut at both edges", "a video", "equal and other grids in turn"])
def test_8_bits_are_close_to_the_truth(name: str, deep: Path) -> None:
    """Codes of weights and activations, in all matrices but the embedding, cost a few times what bfloat16 does."""
    units, patches = CASES[name], pixels(CASES[name])
    truth = make_adapter(deep, torch.float32).encode(patches, units)
    coded = make_adapter(deep, torch.float32, vision_quantization="int8")
    tokens = coded.encode(patches, units)
    assert 1e-4 * truth.norm() < (tokens - truth).norm() < 0.03 * truth.norm()
    assert torch.equal(tokens, alone(coded, patches, units))


@pytest.mark.parametrize("by", ["panels", "oneDNN", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear_layers_with_what_follows(by: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our products of weights in panels; for others oneDNN's or, where it lacks them, torch's."""
    if by == "oneDNN" and not linear._fused(dtype):
        pytest.skip("oneDNN has no such product here")
    monkeypatch.setattr(linear, "_fused", lambda dtype: by == "oneDNN")
    x, layer, other = torch.randn(9, 20), torch.nn.Linear(20, 12).requires_grad_(False), torch.randn(9, 12)
    product = layer(x)
    x, other, layer = x.to(dtype), other.to(dtype), layer.to(dtype)
    layer = in_panels(layer) if by == "panels" else layer
    tolerance = 0.05 if dtype == torch.bfloat16 else 1e-5
    before = other.clone()
    for out, expected in (
        (linear.linear(x, layer), product),
        (linear.linear(x, layer, "silu"), torch.nn.functional.silu(product)),
        (linear.linear(x, layer, "gelu"), torch.nn.functional.gelu(product)),
        (linear.linear_plus(x, layer, other), product + other),
        (linear.linear_times(x, layer, other), product * other),
    ):
        assert out.dtype == dtype
        torch.testing.assert_close(out.float(), expected, rtol=tolerance, atol=tolerance)
    assert torch.equal(other, before)


@pytest.mark.parametrize("patches", [1, 36, 80, 200])
def test_many_units_go_in_parts(
    patches: int, adapter: LanguageAdapter, hf: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuVision, "rows_at_once", patches)
    units: Units = [(plan("image", 5, 4), 1), (plan("video", 3, 3, 5), 5), (plan("image", 2, 1), 1)]
    sizes = [
        [n for p, count in part for n in count * [p.patches_per_unit]] for part in vision_tower._parts(units, patches)
    ]
    assert [n for part in sizes for n in part] == [80, *5 * [36], 8]
    assert all(len(part) == 1 or sum(part) <= patches for part in sizes)
    assert all(sum(one) + two[0] > patches for one, two in itertools.pairwise(sizes))
    rows = pixels(units)
    expected = theirs(hf.model.model.visual, rows, units)
    torch.testing.assert_close(adapter.encode(rows, units), expected, rtol=1e-4, atol=2e-5)


def test_units_larger_than_a_tile(adapter: LanguageAdapter, hf: Reference) -> None:
    units: Units = [(plan("image", 23, 25), 1), (plan("video", 3, 3, 4), 4)]
    patches = pixels(units)
    expected = theirs(hf.model.model.visual, patches, units)
    torch.testing.assert_close(adapter.encode(patches, units), expected, rtol=1e-4, atol=2e-5)


def test_other_dtypes_are_refused(hf: Reference) -> None:
    tower = copy.deepcopy(hf.model.model.visual).half()
    with pytest.raises(ConfigError, match=r"torch\.float16; supported are float32 and bfloat16"):
        VisionTower(tower, {"image": MediaRules(1, 2).normalisation()}, CPU)


@pytest.fixture
def buffers(adapter: LanguageAdapter) -> Iterator[tuple[RowBuffer, RowBuffer]]:
    """A patch buffer and a visual buffer whose pages hold neither whole units nor equal parts of them."""
    hidden = adapter.config.text_config.hidden_size
    pools = [
        PagePool.create(f"test-models-{uuid.uuid4().hex[:12]}", count, size)
        for count, size in ((64, 7 * ROW_BYTES), (64, 4 * hidden * 4))
    ]
    yield RowBuffer(pools[0], ROW_BYTES, torch.uint8), RowBuffer(pools[1], hidden, torch.float32)
    for pool in pools:
        pool.close()
        pool.unlink()


@pytest.fixture
def status() -> Iterator[Status]:
    arena = Status.create(f"test-models-{uuid.uuid4().hex[:12]}", ["encode"])
    yield Status(arena, ["encode"])
    arena.close()
    arena.unlink()


@pytest.fixture
def kv(adapter: LanguageAdapter) -> Iterator[KVCache]:
    layout = KVLayout.of(adapter.config, 16, name_of(adapter.dtype))
    pool = PagePool.create(f"test-models-{uuid.uuid4().hex[:12]}", 1, layout.page_bytes)
    yield KVCache(pool, layout)
    pool.close()
    pool.unlink()


def request(uid: int, media: Sequence[MediaPlan], config: Any) -> PrefillRequest:
    placeholders = {"image": config.image_token_id, "video": config.video_token_id}
    tokens = [token for plan in media for token in [0, *[placeholders[plan.kind]] * plan.tokens]]
    return PrefillRequest(
        ticket=Ticket(uid, 0.0),
        token_ids=tokens,
        num_prompt=len(tokens),
        media=list(media),
        sampling=SamplingParams(),
        indices=[0],
    )


def encoded(stage: EncodeStage, prompts: PromptTable, work: list[EncodeWork]) -> list[Embeddings]:
    steps = stage.begin(work)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return stage.finish(ended.value).units


def test_a_step_of_several_requests(
    adapter: LanguageAdapter, buffers: tuple[RowBuffer, RowBuffer], kv: KVCache, status: Status
) -> None:
    """Every unit's visual tokens lie in the pages that were taken for them, and no patch stays."""
    patches, visual = buffers
    given = PatchPages(patches, status, "encode")
    prompts = PromptTable(adapter, kv, given, visual, "encode")
    stage = EncodeStage(adapter, given, visual, prompts)
    wanted = {1: [plan("video", 3, 4, 3)], 2: [plan("image", 5, 2), plan("image", 3, 4)]}
    expected, places = {}, {}
    for uid, plans in wanted.items():
        prompts.receive(request(uid, plans, adapter.config))
        for unit, (each, _) in enumerate(prompts[uid].units.parts):
            rows = pixels([(each, 1)], seed=10 * uid + unit)
            taken, aside = patches.take([len(rows)], uid, 0), visual.take([each.unit_tokens(0)], uid, 3)
            assert taken is not None
            assert aside is not None
            patches.write(rows, [(taken[0], len(rows))])
            stage.accept(Patches(uid=uid, units=[unit], pages=taken, visual=aside))
            places[uid, unit] = aside[0]
            expected[uid, unit] = adapter.encode(rows, [(each, 1)])

    first = encoded(stage, prompts, [EncodeWork(1, [0, 1]), EncodeWork(2, [0])])
    second = encoded(stage, prompts, [EncodeWork(1, [2]), EncodeWork(2, [1])])

    assert patches.pool.used_pages() == 0
    assert [prompt.visual_aside for prompt in prompts] == [{}, {}]
    assert {(out.uid, out.unit): out.pages for out in first + second} == places
    assert [(out.uid, out.unit) for out in first + second] == [(1, 0), (1, 1), (2, 0), (1, 2), (2, 1)]
    for out in first + second:
        tokens = expected[out.uid, out.unit]
        written = visual.get(visual.spread(out.pages, len(tokens)), 0, len(tokens))
        torch.testing.assert_close(written, tokens, rtol=1e-4, atol=2e-5)
        assert {visual.pool.owner(page) for page in out.pages} == {(out.uid, 3)}
