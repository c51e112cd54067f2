"""Read NExT-QA: questions with five choices on why and how things happen, about 44 seconds each.

Layout: github.com/doc-doc/NExT-QA, dataset/nextqa/ and README.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from unifiedserve.bench.datasets.choices import with_right_index
from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import comma_rows, read_json
from unifiedserve.bench.datasets.sample import Sample, Unusable
from unifiedserve.bench.requests import Medium


class _Row(msgspec.Struct):
    video: str
    question: str
    answer: int
    qid: str  # repeats from video to video
    type: str
    a0: str
    a1: str
    a2: str
    a3: str
    a4: str


def _read(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    folders = read_json(root / "map_vid_vidorID.json", dict[str, str])
    for path in annotations:
        for where, row in comma_rows(path, _Row):
            if row.video not in folders:
                yield Unusable(where, f"video {row.video} is not in map_vid_vidorID.json")
                continue
            sample = Sample(
                id=f"{row.video}/{row.qid}",
                where=where,
                question=row.question,
                media=(Medium(kind="video", path=str(root / "NExTVideo" / f"{folders[row.video]}.mp4")),),
                task=row.type,
                choices=(row.a0, row.a1, row.a2, row.a3, row.a4),
            )
            yield with_right_index(sample, row.answer)


def _loader(annotations: str) -> Loader:
    return Loader(
        annotations=(annotations,),
        layout=f"{annotations}, map_vid_vidorID.json and NExTVideo/<folder>/<video>.mp4",
        read=_read,
    )


VALIDATION = _loader("val.csv")
TEST = _loader("test.csv")
