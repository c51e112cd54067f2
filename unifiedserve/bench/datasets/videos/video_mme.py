"""Read Video-MME: 900 videos of 11 seconds to 1 hour, three questions each.

Layout: the hub's lmms-lab/Video-MME, its Parquet file and its archives videos_chunked_*.zip.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from unifiedserve.bench.datasets.choices import LETTERS, with_right_index
from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import line_rows, parquet_rows
from unifiedserve.bench.datasets.sample import Sample, Unusable
from unifiedserve.bench.requests import Medium


class _Row(msgspec.Struct):
    question_id: str
    duration: Literal["short", "medium", "long"]  # a class: the seconds are not told
    videoID: str  # noqa: N815  may begin with "-"
    question: str
    options: list[str]  # "A. …"
    answer: Literal["A", "B", "C", "D"]


def _read(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    for path in annotations:
        read = line_rows if path.suffix == ".jsonl" else parquet_rows
        for where, row in read(path, _Row):
            sample = Sample(
                id=row.question_id,
                where=where,
                question=row.question,
                media=(Medium(kind="video", path=str(root / "data" / f"{row.videoID}.mp4")),),
                task=row.duration,
                choices=tuple(re.sub(r"^[A-D][.)]\s*", "", option) for option in row.options),
            )
            yield with_right_index(sample, LETTERS.index(row.answer))


VIDEO_MME = Loader(
    annotations=("videomme/test*.parquet", "videomme/test*.jsonl"),
    layout="videomme/test-00000-of-00001.parquet (or its rows as test.jsonl) and data/<videoID>.mp4",
    read=_read,
)
