"""The examination's files and how answers are judged."""

from dataclasses import replace
from pathlib import Path

import pytest

import flashcodec
from training.examination import is_right, papers, row_of
from training.world.questions import Turn
from training.world.sampling import Recipe, sample_scene


def test_papers_hold_files_and_their_questions(tmp_path: Path) -> None:
    for paper in papers(2, tmp_path):
        stream = flashcodec.VideoDecoder(str(paper.file)).bitstream
        assert stream.num_frames >= 1
        assert abs(stream.width / stream.height - paper.scene.aspect) < 0.01
        assert len(paper.turns) >= 5
        assert all(is_right(paper.scene, turn, turn.answer) for turn in paper.turns)


@pytest.mark.parametrize(
    ("said", "right"),
    [("second 6", True), ("second 7", True), ("second 8", False), ("second 4", False), ("minute 0:10", False)],
)
def test_times_may_be_off_by_a_tenth(said: str, right: bool) -> None:
    scene = replace(sample_scene(Recipe(), 0), seconds=10.0)
    turn = Turn("time", "When?", "It happens at second 6.", seconds=6.2)
    assert is_right(scene, turn, f"It happens at {said}.") == right


def test_other_answers_must_be_exact() -> None:
    scene = sample_scene(Recipe(), 0)
    turn = Turn("colour", "What colour is the star?", "The star is red.")
    assert is_right(scene, turn, "The star is red. ")
    assert not is_right(scene, turn, "The star is blue.")
    assert row_of(scene, replace(turn, category="count", answer="There are four objects.")) == "count of four"
