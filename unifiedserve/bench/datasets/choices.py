"""Label the answers to choose from, and tell the right one."""

import string
from collections.abc import Sequence

import msgspec

from unifiedserve.bench.datasets.sample import Sample, Unusable

YES_NO = ("Yes", "No")
LETTERS = string.ascii_uppercase


def labels(choices: Sequence[str]) -> tuple[str, ...]:
    """Return each choice's label in an answer, a letter. Its log probability tells how likely the choice is.

    Yes and no are their own labels.
    """
    return YES_NO if tuple(choices) == YES_NO else tuple(LETTERS[: len(choices)])


def with_right_text(sample: Sample, answer: str) -> Sample | Unusable:
    """Return the sample with the index of the choice that reads `answer`; unusable unless exactly one does."""
    found = [index for index, choice in enumerate(sample.choices) if same(choice, answer)]
    if len(found) == 1:
        return with_right_index(sample, found[0])
    reason = "none" if not found else "more than one"
    return Unusable(sample.where, f"its answer is {reason} of its candidates")


def with_right_index(sample: Sample, index: int | None) -> Sample | Unusable:
    """Return the sample with the right choice, None if that is not public; unusable if there is no such choice."""
    if not 2 <= len(sample.choices) <= len(LETTERS):
        return Unusable(sample.where, f"it has {len(sample.choices)} candidates")
    if index is not None and not 0 <= index < len(sample.choices):
        return Unusable(sample.where, f"its answer is candidate {index} of {len(sample.choices)}, counted from 0")
    return msgspec.structs.replace(sample, right=index)


def same(one: str, other: str) -> bool:
    """Tell whether two texts differ in case and in space around them at most."""
    return one.strip().casefold() == other.strip().casefold()
