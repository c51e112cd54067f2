"""Read LongVideoBench: questions on moments in videos of up to an hour; its test set has no public answers.

Layout: the hub's longvideobench/LongVideoBench, its JSON files and videos.tar.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from unifiedserve.bench.datasets.choices import with_right_index
from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import Seconds, json_rows
from unifiedserve.bench.datasets.sample import Sample, Unusable
from unifiedserve.bench.requests import Medium


class _Row(msgspec.Struct):
    id: str
    video_path: str
    question: str
    candidates: list[str]
    duration: Seconds
    duration_group: int  # seconds: 15, 60, 600 or 3600
    correct_choice: int | None = None


def _read(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    for path in annotations:
        for where, row in json_rows(path, _Row):
            video = root / "videos" / row.video_path
            sample = Sample(
                id=row.id,
                where=where,
                question=row.question,
                media=(Medium(kind="video", path=str(video), seconds=row.duration),),
                task=f"{row.duration_group} s",
                choices=tuple(row.candidates),
            )
            yield with_right_index(sample, row.correct_choice)


VALIDATION = Loader(
    annotations=("lvb_val.json",), layout="lvb_val.json and videos/<video_path> (out of videos.tar.part.*)", read=_read
)
TEST = Loader(
    annotations=("lvb_test_wo_gt.json",),
    layout="lvb_test_wo_gt.json and videos/<video_path> (out of videos.tar.part.*)",
    read=_read,
)
