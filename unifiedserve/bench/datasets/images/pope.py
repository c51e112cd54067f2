"""Read POPE: is an object in an image of COCO? Objects are drawn at random, by frequency, or to mislead.

Layout: github.com/AoiDragon/POPE, output/coco/, and COCO's val2014.zip.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from unifiedserve.bench.datasets.choices import YES_NO, with_right_text
from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import line_rows
from unifiedserve.bench.datasets.sample import Sample, Unusable
from unifiedserve.bench.requests import Medium


class _Row(msgspec.Struct):
    question_id: int  # counts from 1 in each file
    image: str
    text: str
    label: str


def _read(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    for path in annotations:
        split = path.stem.rpartition("_")[2]
        for where, row in line_rows(path, _Row):
            sample = Sample(
                id=f"{split}/{row.question_id}",
                where=where,
                question=row.text,
                media=(Medium(kind="image", path=str(root / "val2014" / row.image)),),
                task=split,
                choices=YES_NO,
            )
            yield with_right_text(sample, row.label)


POPE = Loader(
    annotations=tuple(
        f"{folder}coco_pope_{split}.json"
        for split in ("random", "popular", "adversarial")
        for folder in ("", "coco/", "output/coco/")
    ),
    layout="coco_pope_<random, popular, adversarial>.json (or in output/coco/) and val2014/COCO_val2014_*.jpg",
    read=_read,
)
