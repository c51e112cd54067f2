"""How often a question is asked again depends on how long it takes."""

from itertools import count

import pytest

from unifiedserve.profiling import effort


@pytest.mark.parametrize(("each", "expected"), [(0.1, 3), (8.0, 2), (300.0, 1)])
def test_long_questions_are_asked_less_often(each: float, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = count(0.0, each)
    monkeypatch.setattr(effort.time, "monotonic", lambda: next(now))
    assert list(effort.FULL.rounds()) == list(range(expected))
