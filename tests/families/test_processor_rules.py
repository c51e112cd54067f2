"""What checkpoints' files say of images and videos: the same pixels and tokens as transformers', or refused by name.

`against_processors.py` is the same for every field, value and family.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import FAMILIES
from checkpoints import find_checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processor_check import check
from processor_variants import OWN_RULES, Section, Variant, fields_of, write_variant
from published_processors import PUBLISHED, write_published
from reference import transformers

from unifiedserve.errors import ConfigError
from unifiedserve.models import processor_defaults
from unifiedserve.models.processor_rules import WITHOUT_EFFECT
from unifiedserve.models.registry import load_processor

VIDEO_CLASSES = {
    "Qwen2VLVideoProcessor": processor_defaults.QWEN2_VIDEOS,
    "Qwen3VLVideoProcessor": processor_defaults.QWEN3_VIDEOS,
    **{defaults["video_processor_type"]: defaults for defaults in processor_defaults.VIDEO_DEFAULTS.values()},
}
#: beside those of every class: videos are numbered as the images are, and what transformers itself takes for old files
NOT_OF_VIDEOS = {"use_image_id", "video_sampling", "video_processor_type"}


@st.composite
def variants(draw: st.DrawFn, family: str) -> Variant:
    """Up to three fields of one of a family's processors."""
    section, fields = draw(st.sampled_from(sorted(fields_of(family).items())))
    names = draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=3, unique=True))
    return Variant(family, section, {name: draw(st.sampled_from(fields[name])) for name in names})


@pytest.mark.parametrize("family", OWN_RULES)
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_fields(family: str, data: st.DataObject, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    variant = data.draw(variants(family))
    write_variant(variant, find_checkpoint(tmp_path_factory, family), tmp_path / "variant")
    verdict = check(tmp_path / "variant", FAMILIES[family].media)
    assert verdict.allowed, f"{variant}: {verdict}"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published(name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    published = PUBLISHED[name]
    write_published(published, find_checkpoint(tmp_path_factory, published.family), tmp_path)
    assert check(tmp_path, FAMILIES[published.family].media) == ("same", "")


@pytest.mark.parametrize(
    ("family", "section", "field", "value"),
    [
        ("llava", "image_processor", "do_resize", False),
        ("llava", "image_processor", "resample", 1),
        ("llava_next", "image_processor", "resample", 0),
        ("qwen2_5_vl", "image_processor", "image_std", [0, 0, 0]),
        ("qwen3_vl", "video_processor", "num_frames", 8),
        ("internvl", "video_processor", "size", {"height": 28, "width": 28}),
        ("minicpmv4_6", "image_processor", "do_resize", False),
        ("smolvlm", "video_processor", "video_processor_type", "InternVLVideoProcessor"),
    ],
)
def test_a_refusal_names_file_field_and_value(
    family: str, section: Section, field: str, value: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write_variant(Variant(family, section, {field: value}), find_checkpoint(tmp_path_factory, family), tmp_path / "c")
    with pytest.raises(ConfigError) as refusal:
        load_processor(tmp_path / "c")
    assert str(tmp_path / "c") in str(refusal.value)
    assert f"processor_config.json: {section}: {field} is {json.dumps(value)}, which must be" in str(refusal.value) or (
        f"preprocessor_config.json: {field} is {json.dumps(value)}, which must be" in str(refusal.value)
    )


@pytest.mark.parametrize("name", VIDEO_CLASSES)
def test_defaults_for_videos_are_transformers(name: str) -> None:
    defaults, theirs = VIDEO_CLASSES[name], getattr(transformers, name)
    for field in defaults.keys() - NOT_OF_VIDEOS:
        ours = defaults[field]
        assert getattr(theirs, field, None) == (list(ours) if isinstance(ours, tuple) else ours), field
    assert theirs.valid_kwargs.__annotations__.keys() - WITHOUT_EFFECT <= defaults.keys() | NOT_OF_VIDEOS
