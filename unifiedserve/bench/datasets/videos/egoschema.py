"""Read EgoSchema: one question with five choices on each clip of 3 minutes; 500 of 5,031 answers are public.

Layout: github.com/egoschema/EgoSchema, questions.json and README.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from unifiedserve.bench.datasets.choices import with_right_index
from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import json_rows, read_json
from unifiedserve.bench.datasets.sample import Sample, Unusable
from unifiedserve.bench.requests import Medium
from unifiedserve.errors import ConfigError

_SECONDS = 180.0  # of each clip (arXiv:2308.09126)
_ANSWERS = dict[str, Annotated[int, msgspec.Meta(ge=0, le=4)]]


class _Row(msgspec.Struct):
    q_uid: str
    question: str
    first: str = msgspec.field(name="option 0")
    second: str = msgspec.field(name="option 1")
    third: str = msgspec.field(name="option 2")
    fourth: str = msgspec.field(name="option 3")
    fifth: str = msgspec.field(name="option 4")


def _read(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    answers_file = root / "subset_answers.json"
    answers = read_json(answers_file, _ANSWERS) if answers_file.exists() else {}
    for path in annotations:
        for where, row in json_rows(path, _Row):
            video = root / "videos" / f"{row.q_uid}.mp4"
            sample = Sample(
                id=row.q_uid,
                where=where,
                question=row.question,
                media=(Medium(kind="video", path=str(video), seconds=_SECONDS),),
                choices=(row.first, row.second, row.third, row.fourth, row.fifth),
            )
            yield with_right_index(sample, answers.get(row.q_uid))


def _read_subset(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    if not (root / "subset_answers.json").exists():
        raise ConfigError(f"{root}: has no subset_answers.json, which says which questions the subset is")
    for sample in _read(root, annotations):
        if isinstance(sample, Unusable) or sample.right is not None:
            yield sample


ALL = Loader(
    annotations=("questions.json",),
    layout="questions.json, subset_answers.json and videos/<q_uid>.mp4",
    read=_read,
)
SUBSET = msgspec.structs.replace(ALL, read=_read_subset)
