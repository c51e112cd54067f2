"""Read VizWiz: questions that blind people asked about photographs they took; some cannot be answered.

Layout: vizwiz.org/tasks-and-datasets/vqa, val.zip and Annotations.zip.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import json_rows
from unifiedserve.bench.datasets.sample import Sample
from unifiedserve.bench.requests import Medium


class _Answer(msgspec.Struct):
    answer: str


class _Row(msgspec.Struct):
    image: str
    question: str
    answers: list[_Answer] = []  # of ten people
    answer_type: str = ""


def _read(root: Path, annotations: Sequence[Path]) -> Iterator[Sample]:
    for path in annotations:
        for where, row in json_rows(path, _Row):
            yield Sample(
                id=Path(row.image).stem,
                where=where,
                question=f'{row.question}\nAnswer in a few words, or "unanswerable".',
                media=(Medium(kind="image", path=str(root / "val" / row.image)),),
                task=row.answer_type,
                answers=tuple(answer.answer for answer in row.answers),
            )


VIZWIZ = Loader(
    annotations=("val.json", "Annotations/val.json"),
    layout="Annotations/val.json and val/<image>",
    read=_read,
)
