"""The tower of Qwen2-VL and Qwen3-VL against transformers' on any mix of media."""

from pathlib import Path
from typing import Any

import builders
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_loop import make_adapter
from reference import transformers
from torch import Tensor

from flashcodec import PatchLayout
from unifiedserve.messages.media import MediaKind, MediaPlan
from unifiedserve.models.adapter import LanguageAdapter


@pytest.fixture(scope="module", params=["qwen2_vl", "qwen3_vl", "qwen3_vl_moe"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp(request.param)
    builders.FAMILIES[request.param].make(directory)
    return directory


def unit(adapter: LanguageAdapter, kind: MediaKind, rows: int, columns: int) -> MediaPlan:
    size = adapter.config.vision_config.patch_size
    layout = PatchLayout(rows * 2 * size, columns * 2 * size, size, 2, 2)
    return MediaPlan(
        kind=kind, layout=layout, units=9, patches_per_unit=rows * columns * 4, tokens_per_unit=rows * columns
    )


def noise(adapter: LanguageAdapter, units: list[tuple[MediaPlan, int]], seed: int) -> Tensor:
    """uint8 patches [N, row_bytes]."""
    rows = sum(plan.patches_per_unit * count for plan, count in units)
    width = 3 * 2 * adapter.config.vision_config.patch_size**2
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (rows, width), generator=generator, dtype=torch.uint8)


mixes = st.lists(
    st.tuples(st.sampled_from(["image", "video"]), st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def adapter(checkpoint: Path) -> LanguageAdapter:
    return make_adapter(checkpoint, torch.float32)


@pytest.fixture(scope="module")
def tower(checkpoint: Path) -> Any:
    return reference.load(checkpoint).model.model.visual


def theirs(tower: Any, pixels: Tensor, grids: list[tuple[int, int, int]]) -> Tensor:
    with torch.inference_mode():
        out = tower(pixels, grid_thw=torch.tensor(grids))
    return torch.cat([out.pooler_output, *(getattr(out, "deepstack_features", None) or [])], dim=1)


@settings(max_examples=25)
@given(mix=mixes, seed=st.integers(0, 1000))
def test_visual_tokens_of_any_mix(mix: Any, seed: int, adapter: LanguageAdapter, tower: Any) -> None:
    units = [(unit(adapter, kind, rows, columns), count) for kind, rows, columns, count in mix]
    patches = noise(adapter, units, seed)
    mean, std = normalisation(adapter, patches.shape[1])
    expected = theirs(tower, (patches - mean) / std, [(count, *plan.grid[1:]) for plan, count in units])
    torch.testing.assert_close(adapter.encode(patches, units), expected, rtol=1e-4, atol=5e-5)


def normalisation(adapter: LanguageAdapter, width: int) -> tuple[Tensor, Tensor]:
    if adapter.config.model_type == "qwen2_vl":
        rules = transformers.Qwen2VLImageProcessor()
        means, stds = rules.image_mean, rules.image_std
    else:
        means, stds = [0.5] * 3, [0.5] * 3
    mean, std = (torch.tensor(values).repeat_interleave(width // 3) * 255 for values in (means, stds))
    return mean, std


def test_bfloat16_stays_close(checkpoint: Path, adapter: LanguageAdapter) -> None:
    """Visual tokens of the bfloat16 model agree with float32's as far as rounding allows."""
    half = make_adapter(checkpoint, torch.bfloat16)
    units = [(unit(adapter, "image", 5, 7), 1), (unit(adapter, "video", 4, 4), 2)]
    patches = noise(adapter, units, 0)
    exact, rounded = adapter.encode(patches, units), half.encode(patches, units)
    assert rounded.dtype == torch.bfloat16
    assert torch.cosine_similarity(exact, rounded.float(), dim=-1).min() > 0.999
