"""Read ActivityNet-QA: questions on videos of daily life, answered freely, in a word or two.

Layout: github.com/MILVLG/activitynet-qa, dataset/ and README.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import json_rows
from unifiedserve.bench.datasets.sample import Sample, Unusable
from unifiedserve.bench.requests import Medium


class _Question(msgspec.Struct):
    video_name: str  # may begin with "-"
    question: str
    question_id: str


class _Answer(msgspec.Struct):
    answer: str
    question_id: str
    type: int


def _read(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    videos = {path.stem: path for path in sorted((root / "all_test").glob("v_*"))}  # mp4, mkv or webm
    answers = {row.question_id: row for _, row in json_rows(root / "test_a.json", _Answer)}
    for path in annotations:
        for where, row in json_rows(path, _Question):
            if row.question_id not in answers:
                yield Unusable(where, f"test_a.json has no answer to {row.question_id}")
                continue
            stem, answer = f"v_{row.video_name}", answers[row.question_id]
            yield Sample(
                id=row.question_id,
                where=where,
                question=f"{row.question}?\nAnswer in a few words.",
                media=(Medium(kind="video", path=str(videos.get(stem, root / "all_test" / f"{stem}.mp4"))),),
                task=f"type {answer.type}",
                answers=(answer.answer,),
            )


TEST = Loader(
    annotations=("test_q.json",),
    roots=(".", "dataset"),
    layout="test_q.json, test_a.json and all_test/v_<video_name>.<mp4, mkv or webm>",
    read=_read,
)
