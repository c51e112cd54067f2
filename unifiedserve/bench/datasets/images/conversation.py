"""Ask the user's side of conversations about images again."""

import re

from unifiedserve.bench.datasets.sample import Sample, Unusable
from unifiedserve.bench.requests import Medium

_PLACEHOLDER = re.compile(r"\s*<image>\s*")


def conversation(name: str, where: str, said: list[str], answers: list[str], images: list[str]) -> Sample | Unusable:
    """Return a user's turns about images (their paths), and the answers to them."""
    turns = [text for text in (_PLACEHOLDER.sub(" ", text).strip() for text in said) if text]
    if not turns:
        return Unusable(where, "the user says nothing in it")
    return Sample(
        id=name,
        where=where,
        question=turns[0],
        follow_ups=tuple(turns[1:]),
        media=tuple(Medium(kind="image", path=path) for path in images),
        answers=tuple(answers),
    )
