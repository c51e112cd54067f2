"""When a first token is expected, and how many frames bring it in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.messages.costs import Costs
from unifiedserve.scheduling import Outlook, Work, affordable_frames

COSTS = Costs(prompt_token=0.001, visual_token=0.004, image_pixel=1e-8, video_second=2.0)
POSITIVE = st.floats(1e-6, 10)


def test_an_expected_first_token_is_the_sum_of_its_stages_after_those_before() -> None:
    work = Work(prompt_tokens=100, visual_tokens=50, image_pixels=10**6, video_seconds=0.25)
    assert Outlook(1.5, COSTS).first_token(work) == pytest.approx(1.5 + 0.1 + 0.2 + 0.01 + 0.5)
    assert Outlook(0.0, COSTS).first_token(Work(prompt_tokens=100)) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("costs", "work"),
    [
        (Costs(), Work(prompt_tokens=1)),
        (Costs(prompt_token=1.0), Work(prompt_tokens=1, visual_tokens=1)),
        (Costs(prompt_token=1.0, visual_token=1.0), Work(prompt_tokens=1, visual_tokens=1, video_seconds=0.1)),
        (Costs(prompt_token=1.0), Work(prompt_tokens=1, image_pixels=1)),
        (COSTS, Work(prompt_tokens=1, video_seconds=None)),
    ],
)
def test_what_was_never_measured_is_not_guessed(costs: Costs, work: Work) -> None:
    assert Outlook(0.0, costs).first_token(work) is None


@given(frames=st.integers(1, 2000), fixed=POSITIVE, each=POSITIVE, limit=st.floats(1e-6, 2e4))
def test_as_many_frames_are_seen_as_come_in_time(frames: int, fixed: float, each: float, limit: float) -> None:
    asked: list[int] = []

    def seconds(count: int) -> float:
        asked.append(count)
        return fixed + each * count

    chosen = affordable_frames(frames, seconds, limit)
    assert 1 <= chosen <= frames
    assert len(asked) <= 8, "each may cost a look at the video"
    if fixed + each * frames <= limit or frames == 1:
        assert chosen == frames
    elif fixed + each <= limit:
        assert fixed + each * chosen <= limit
        assert fixed + each * (chosen + 1) / 0.8 > limit, "not many more would do"
    else:
        assert chosen == 1


@given(frames=st.integers(1, 2000), limit=st.floats(1e-6, 10))
def test_all_frames_are_seen_where_nothing_is_known(frames: int, limit: float) -> None:
    assert affordable_frames(frames, lambda count: None, limit) == frames


@given(frames=st.integers(2, 2000), wait=POSITIVE, more=POSITIVE)
def test_a_longer_queue_never_buys_more_frames(frames: int, wait: float, more: float) -> None:
    def chosen(wait: float) -> int:
        return affordable_frames(frames, lambda count: wait + 0.05 * count, 10.0)

    assert chosen(wait + more) <= chosen(wait)
