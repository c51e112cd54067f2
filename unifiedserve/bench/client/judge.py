"""Judge whether an answer is right."""

import math
from collections.abc import Callable, Mapping, Sequence

from unifiedserve.bench.client.answer import Answer
from unifiedserve.bench.records import Record
from unifiedserve.bench.requests import Expected

Score = Callable[[str, Expected], bool | None]  # whether a text names the right choice
Labels = Callable[[Sequence[str]], Sequence[str]]  # what an answer names each choice by


def by_text(score: Score) -> Callable[[Record, Answer, Expected], bool | None]:
    """Return a judge of what the answer says."""
    return lambda record, answer, expected: score(record.text, expected)


def by_logprob(labels: Labels) -> Callable[[Record, Answer, Expected], bool | None]:
    """Return a judge of the model's likeliest choice, by its first token.

    None if the right one is not public, or no choice is among the likeliest tokens.
    """

    def judge(record: Record, answer: Answer, expected: Expected) -> bool | None:
        chosen = likeliest(answer.first_token, labels(expected.choices))
        return None if chosen is None or expected.right is None else chosen == expected.right

    return judge


def likeliest(logprobs: Mapping[str, float], labels: Sequence[str]) -> int | None:
    """Return the index of the likeliest label; tokens that differ in spaces only count together."""
    mass = [sum(math.exp(value) for token, value in logprobs.items() if token.strip() == label) for label in labels]
    return mass.index(max(mass)) if any(mass) else None
