"""Idefics3 and SmolVLM: pixels and texts for images of any size, frames and times of videos, by transformers."""

from typing import Any

import numpy as np
import pytest
import torch
from builders import Loaded
from cases import pixels, user
from conformance_cases import prepare
from hypothesis import given, settings
from hypothesis import strategies as st
from model_loop import plans
from reference import Case

from unifiedserve.messages.media import MediaOptions, PromptError, VideoInfo
from unifiedserve.models.number_words import in_words

both = pytest.mark.parametrize("loaded", ["idefics3", "smolvlm"], indirect=True, scope="session")
smolvlm = pytest.mark.parametrize("loaded", ["smolvlm"], indirect=True, scope="session")


def check(loaded: Loaded, case: Case) -> None:
    """The prompt and the pixels before normalisation are transformers'."""
    inputs = loaded.hf.inputs(case, do_rescale=False, do_normalize=False)
    request = prepare(loaded, case)
    assert request.prompt.token_ids == inputs["input_ids"][0].tolist()
    pictures = inputs["pixel_values"].to(torch.uint8).flatten(0, 1)
    expected = pictures[pictures.bool().flatten(1).any(1)]  # without the black ones that pad shorter videos
    assert torch.equal(request.patches, expected.view(request.patches.shape))


@both
@settings(max_examples=60)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 1000))
def test_images_of_any_size(loaded: Loaded, height: int, width: int, seed: int) -> None:
    check(loaded, Case([user("image", "Well?")], [pixels(seed, height, width)]))


@both
@pytest.mark.parametrize("size", [(2, 900), (900, 3), (56, 56), (57, 56), (1200, 1200)])
def test_images_of_odd_sizes(loaded: Loaded, size: tuple[int, int]) -> None:
    check(loaded, Case([user("image", "Well?")], [pixels(1, *size)]))


@smolvlm
@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(4, 300), st.integers(4, 300), st.floats(0.01, 60))
def test_videos_of_any_size(loaded: Loaded, frames: int, height: int, width: int, fps: float) -> None:
    check(loaded, Case([user("video", "Well?")], videos=[pixels(1, frames, height, width)], fps=fps))


@smolvlm
def test_two_videos(loaded: Loaded) -> None:
    videos = [pixels(1, 3, 90, 100), pixels(2, 21, 60, 60)]
    check(loaded, Case([user("video", "and", "video", "Well?")], videos=videos))


@smolvlm
def test_a_question_about_the_name_of_a_placeholder(loaded: Loaded) -> None:
    """It is no token of SmolVLM's, so nothing tells it from text but who wrote it: transformers refuses it."""
    ours, question = loaded.ours, "What is <video> in HTML?"
    image = ours.plan_image(90, 100, MediaOptions())
    video = ours.plan_video(VideoInfo(8, 8.0, 1.0, 64, 64), MediaOptions())
    for kind, plan in (("image", image), ("video", video)):
        prompt = ours.prompt([user(kind, question)], [plan])
        assert question in ours.tokenizer.decode(prompt.token_ids)
        assert prompt.media == [plan]


@both
def test_contents_that_are_strings_are_not_lost_by_templates_of_parts(loaded: Loaded) -> None:
    template = "{% for message in messages %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endfor %}"
    messages = [{"role": "user", "content": "What is a river?"}]
    ours = type(loaded.ours)(loaded.checkpoint, loaded.ours.config, template)
    assert loaded.ours.tokenizer.decode(ours.prompt(messages, []).token_ids) == "What is a river?"


@smolvlm
@settings(max_examples=300)
@given(
    st.integers(1, 5000),
    st.floats(0.05, 120),
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"fps": st.floats(0.05, 30)}),
        st.fixed_dictionaries({"max_frames": st.integers(1, 100)}),
        st.fixed_dictionaries({"fps": st.floats(0.05, 30), "max_frames": st.integers(1, 100)}),
    ),
)
def test_frames_are_transformers(loaded: Loaded, total: int, fps: float, options: dict[str, Any]) -> None:
    duration = total / fps
    metadata = transformers_metadata(total, fps, duration)
    most = options.get("max_frames")
    expected = loaded.hf.processor.video_processor.sample_frames(metadata, num_frames=most, fps=options.get("fps"))
    plan = loaded.ours.plan_video(VideoInfo(total, fps, duration, 64, 48), MediaOptions(**options))
    assert list(plan.frame_indices) == expected.tolist()


def transformers_metadata(total: int, fps: float, duration: float) -> Any:
    from reference import transformers

    return transformers.video_utils.VideoMetadata(total_num_frames=total, fps=fps, duration=duration)


@smolvlm
@pytest.mark.parametrize("options", [{"fps": 8, "max_frames": 9}, {"num_frames": -1, "max_frames": 9}])
def test_as_many_frames_as_asked_for(loaded: Loaded, options: dict[str, Any]) -> None:
    plan = loaded.ours.plan_video(VideoInfo(33, 8.0, 33 / 8, 64, 48), MediaOptions(**options))
    assert plan.frame_indices == tuple(range(0, 33, 4))


@smolvlm
@pytest.mark.parametrize("option", ["min_pixels", "max_pixels"])
def test_sizes_are_fixed(loaded: Loaded, option: str) -> None:
    with pytest.raises(PromptError, match=option):
        loaded.ours.plan_video(VideoInfo(8, 8.0, 1.0, 64, 48), MediaOptions(**{option: 1000}))


@smolvlm
def test_a_template_that_was_given_renders_videos_too(loaded: Loaded) -> None:
    template = "{% for message in messages %}Q: <video>{% endfor %}"
    ours = type(loaded.ours)(loaded.checkpoint, loaded.ours.config, template)
    case = Case([user("video")], videos=[np.zeros((2, 60, 60, 3), np.uint8)])
    token_ids = ours.prompt(case.messages, plans(ours, case)).token_ids
    assert ours.tokenizer.decode(token_ids).startswith("Q: You are provided")


@given(st.integers(0, 10**9 - 1))
def test_numbers_in_words(number: int) -> None:
    num2words = pytest.importorskip("num2words")
    assert in_words(number) == num2words.num2words(number)
