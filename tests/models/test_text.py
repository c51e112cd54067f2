"""Texts of too many tokens are refused after work in proportion to what is allowed, not to what was sent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.messages.media import MediaOptions, MediaPlan
from unifiedserve.models.processor import Processor, VideoInfo
from unifiedserve.models.text import TextEncoder, TooLongError


class Counting:
    """A tokenizer that counts the characters it is given."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.characters = 0

    def __call__(self, text: str, **options: Any) -> Any:
        self.characters += len(text)
        return self._tokenizer(text, **options)

    def get_vocab(self) -> dict[str, int]:
        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        return vocabulary


@pytest.mark.parametrize("text", ["the quick brown fox ", "a", "  \n", "ß漢字🙂", "0123456789", "<|im_end|>"])
def test_work_is_bounded_by_the_limit(ours: Processor, text: str) -> None:
    counting = Counting(ours.tokenizer)
    with pytest.raises(TooLongError):
        TextEncoder(counting).encode(text * 1_000_000, 1000)
    assert counting.characters < 200_000


@given(st.text(max_size=300), st.integers(1, 400))
def test_texts_that_fit_are_encoded_as_ever(ours: Processor, text: str, limit: int) -> None:
    expected = ours.tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(expected) <= limit:
        assert TextEncoder(ours.tokenizer).encode(text, limit) == expected


@pytest.mark.parametrize("word", ["word ", "   ", "é", "\n\n", "Zwölf Boxkämpfer jagen Viktor. "])
def test_a_long_text_that_just_fits_is_not_refused(ours: Processor, word: str) -> None:
    text = word * (400_000 // len(word))
    expected = ours.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert TextEncoder(ours.tokenizer).encode(text, len(expected)) == expected


@pytest.mark.parametrize("where", ["system", "user", "tool"])
def test_a_conversation_is_refused_before_it_is_rendered(
    ours: Processor, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours.tokenizer, "apply_chat_template", lambda *args, **kwargs: pytest.fail("was rendered"))
    with pytest.raises(TooLongError):
        ours.prompt([{"role": where, "content": "many words " * 500_000}], [], 1000)


def test_a_video_of_millions_of_tokens_is_refused_before_they_are_made(ours: Processor) -> None:
    video = VideoInfo(
        num_frames=80, fps=8.0, duration=10.0, width=64, height=64, pts_seconds=[i / 8 for i in range(80)]
    )
    plan = ours.plan_video(video, MediaOptions(num_frames=80, min_pixels=2**31 - 1, max_pixels=2**31 - 1))
    assert plan.tokens > 10_000_000
    with pytest.raises(TooLongError, match=rf"\b{plan.tokens // 1_000_000}\d+ tokens"):
        ours.prompt([{"role": "user", "content": [{"type": "video"}]}], [plan], 1000)


def test_media_of_more_parts_than_tokens_are_not_even_written_out(ours: Processor) -> None:
    written: list[MediaPlan] = []

    class Many(type(ours)):  # type: ignore[misc]
        def runs(self, plan: MediaPlan) -> list[int]:
            return [1] * 2000

        def media_text(self, plan: MediaPlan) -> str:
            written.append(plan)
            return ""

    plan = ours.plan_image(64, 64, MediaOptions())
    many = Many.__new__(Many)
    many.__dict__.update(ours.__dict__)
    with pytest.raises(TooLongError):
        many.prompt([{"role": "user", "content": [{"type": "image"}]}], [plan], 1000)
    assert not written
