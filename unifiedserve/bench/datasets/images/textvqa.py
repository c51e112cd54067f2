"""Read TextVQA and TextCaps: questions on the text in photographs, and captions that tell it.

Layout: textvqa.org/dataset and textvqa.org/textcaps/dataset; the images of both are train_val_images.zip.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import json_rows
from unifiedserve.bench.datasets.sample import Sample
from unifiedserve.bench.requests import Medium


class _Question(msgspec.Struct):
    question_id: int
    image_id: str
    question: str
    answers: list[str] = []  # of ten people


class _Caption(msgspec.Struct):
    image_id: str
    reference_strs: list[str] = []  # all captions of the image, in each of its rows


def _read_questions(root: Path, annotations: Sequence[Path]) -> Iterator[Sample]:
    for path in annotations:
        for where, row in json_rows(path, _Question, "data"):
            yield Sample(
                id=str(row.question_id),
                where=where,
                question=f"{row.question}\nAnswer in a few words.",
                media=_image(root, row.image_id),
                answers=tuple(row.answers),
            )


def _read_captions(root: Path, annotations: Sequence[Path]) -> Iterator[Sample]:
    for path in annotations:
        seen = set()
        for where, row in json_rows(path, _Caption, "data"):
            if row.image_id not in seen:
                seen.add(row.image_id)
                yield Sample(
                    id=row.image_id,
                    where=where,
                    question="Describe this image in one sentence, with the text that can be read in it.",
                    media=_image(root, row.image_id),
                    answers=tuple(row.reference_strs),
                )


def _image(root: Path, name: str) -> tuple[Medium]:
    return (Medium(kind="image", path=str(root / "train_images" / f"{name}.jpg")),)


TEXTVQA = Loader(
    annotations=("TextVQA_*_val.json",),
    layout="TextVQA_0.5.1_val.json and train_images/<image_id>.jpg",
    read=_read_questions,
)
TEXTCAPS = Loader(
    annotations=("TextCaps_*_val.json",),
    layout="TextCaps_0.1_val.json and train_images/<image_id>.jpg",
    read=_read_captions,
)
