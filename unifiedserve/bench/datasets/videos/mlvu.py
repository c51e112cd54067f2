"""Read MLVU: nine tasks on videos of 3 minutes to 9 hours, and its test set.

Layout: github.com/JUNJIE99/MLVU, data/ and README; the test set is its archive MLVU_Test.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from unifiedserve.bench.datasets.choices import with_right_index, with_right_text
from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import Seconds, json_rows
from unifiedserve.bench.datasets.sample import Sample, Unusable
from unifiedserve.bench.requests import Medium


class _Row(msgspec.Struct):
    video: str
    duration: Seconds
    question: str
    question_type: str
    candidates: list[str] | None = None  # tasks 8 and 9 have none: their answers are free
    answer: str | None = None
    question_id: str | None = None  # the test set's


def _read_dev(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    """Yield a task's videos from the folder named like its file. The same names occur in several of them."""
    for path in annotations:
        for number, (where, row) in enumerate(json_rows(path, _Row), 1):
            yield _sample(row, f"{path.stem}/{number}", where, root / "video" / path.stem / row.video, path.stem)


def _read_test(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    """Yield the files with answers.

    They repeat the questions of those without, which only count where the former are absent.
    """
    answered = [path for path in annotations if path.parent.name == "test-ground-truth"]
    for path in answered or annotations:
        for number, (where, row) in enumerate(json_rows(path, _Row), 1):
            video = root / "MLVU_Test" / "video" / row.video
            yield _sample(row, row.question_id or f"{path.stem}/{number}", where, video, row.question_type)


def _sample(row: _Row, name: str, where: str, video: Path, task: str) -> Sample | Unusable:
    sample = Sample(
        id=name,
        where=where,
        question=row.question,
        media=(Medium(kind="video", path=str(video), seconds=row.duration),),
        task=task,
        choices=tuple(row.candidates or ()),
        answers=(row.answer,) if row.answer and not row.candidates else (),
    )
    if row.candidates is None:
        return sample
    return with_right_index(sample, None) if row.answer is None else with_right_text(sample, row.answer)


DEV = Loader(
    annotations=tuple(f"json/{number}_*.json" for number in range(1, 10)),
    roots=("MLVU", "."),
    layout="MLVU/json/<task>.json and MLVU/video/<task>/<video>",
    read=_read_dev,
)
TEST = Loader(
    annotations=("test-ground-truth/test_*_gt.json", "test_multi_choice_tasks.json", "test_generation_tasks.json"),
    roots=(".", "MLVU_Test"),
    layout="test-ground-truth/test_mcq_gt.json (or test_multi_choice_tasks.json) and MLVU_Test/video/<video>",
    read=_read_test,
)
