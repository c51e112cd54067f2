"""LLaVA checkpoints as they are found on the hub, and those that do not fit themselves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders_llava
import pytest
import reference
from cases import pixels, user
from reference import Case

from unifiedserve.errors import ConfigError
from unifiedserve.messages.media import MediaOptions, MediaPlan, PromptError, VideoInfo
from unifiedserve.models.registry import load_processor

CASE = Case([user("image", "What is this?")], [pixels(1, 90, 120)])
VIDEO = VideoInfo(3000, 30.0, 100.0, 160, 120)
FAMILIES = [builders_llava.llava_next, builders_llava.llava_next_video, builders_llava.llava_onevision]


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def image(checkpoint: Path) -> MediaPlan:
    return load_processor(checkpoint).plan_image(400, 300, MediaOptions())


@pytest.mark.parametrize("make", [builders_llava.llava, *FAMILIES])
def test_old_checkpoints_need_no_processor_config(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    now = image(tmp_path)
    new = tmp_path / "processor_config.json"
    rules = json.loads(new.read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(rules["image_processor"]))
    if video := rules.get("video_processor"):
        (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(video))
    new.write_text(json.dumps({"processor_class": rules["processor_class"]}))
    assert image(tmp_path) == now
    if video:
        assert load_processor(tmp_path).plan_video(VIDEO, MediaOptions()).tokens > 0


@pytest.mark.parametrize("make", FAMILIES)
def test_contradictions_are_named(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    config, rules = tmp_path / "config.json", tmp_path / "processor_config.json"
    given = config.read_text(), rules.read_text()
    edit(config, lambda c: c.update(image_grid_pinpoints=[[112, 112]]))
    with pytest.raises(ConfigError, match="image_grid_pinpoints"):
        load_processor(tmp_path)
    config.write_text(given[0])
    other = {"full": "default", "default": "full"}
    edit(config, lambda c: c.update(vision_feature_select_strategy=other[c["vision_feature_select_strategy"]]))
    with pytest.raises(ConfigError, match="vision_feature_select_strategy"):
        load_processor(tmp_path)
    config.write_text(given[0])
    edit(rules, lambda r: r["image_processor"].update(size={"height": 28, "width": 28}, crop_size=None))
    with pytest.raises(ConfigError, match="28"):
        load_processor(tmp_path)


@pytest.mark.parametrize(("file", "strategy"), [("config.json", "full"), ("processor_config.json", None)])
@pytest.mark.parametrize("make", [builders_llava.llava, builders_llava.llava_next])
def test_a_strategy_in_one_file_alone(
    make: Callable[[Path], None], file: str, strategy: str | None, tmp_path: Path
) -> None:
    """What transformers cannot answer either is refused before it is served, by the name of the field."""
    make(tmp_path)
    edit(tmp_path / file, lambda c: c.update(vision_feature_select_strategy=strategy))
    with pytest.raises((RuntimeError, ValueError), match=r"do not match|must match"):
        reference.load(tmp_path).generate(CASE, 1)
    with pytest.raises(ConfigError, match="vision_feature_select_strategy"):
        load_processor(tmp_path)


def test_frames_of_another_size_are_refused(tmp_path: Path) -> None:
    builders_llava.llava_next_video(tmp_path)
    edit(tmp_path / "processor_config.json", lambda r: r["video_processor"].update(do_center_crop=False, size={}))
    with pytest.raises(ConfigError, match="size"):
        load_processor(tmp_path)


def test_frames_that_nobody_asked_for_fit_the_context(tmp_path: Path) -> None:
    builders_llava.llava_next_video(tmp_path)
    processor = load_processor(tmp_path)
    plan = processor.plan_video(VIDEO, MediaOptions())
    assert plan.units == 16  # 144 tokens each in the released models, of 4096
    assert processor.plan_video(VIDEO, MediaOptions(fps=1.0)).units == 100
    assert processor.plan_video(VIDEO, MediaOptions(fps=1.0, max_frames=7)).units == 7


@pytest.mark.parametrize("make", FAMILIES)
def test_limits_of_pixels_are_refused(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(PromptError) as refusal:
        load_processor(tmp_path).plan_image(100, 100, MediaOptions(max_pixels=1000))
    assert refusal.value.param == "max_pixels"


def test_a_limit_of_tiles_is_understood_or_refused(tmp_path: Path) -> None:
    builders_llava.llava_onevision(tmp_path)
    edit(tmp_path / "config.json", lambda c: c.update(vision_aspect_ratio="square"))
    with pytest.raises(ConfigError, match="anyres_max_"):
        load_processor(tmp_path)
