"""Scope cross-attention: which visual tokens a prompt's tokens attend to."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from unifiedserve.attention import CrossSpan


class Scope(NamedTuple):
    """Name the visual rows that tokens attend to, from `start` to the next scope's. The rows are a request's own.

    The last scope goes on in the answer. One that is `early` comes before the first medium.
    """

    start: int
    rows: Sequence[range]
    early: bool = False


def cross_spans(
    scopes: Sequence[Scope], start: int, stop: int, find: Callable[[Sequence[range]], Tensor]
) -> list[CrossSpan]:
    """Split tokens [start, stop) of a sequence by scope; `find` tells which rows of the buffer a request's are."""
    ends = [*(scope.start for scope in scopes[1:]), stop]
    spans = []
    for scope, end in zip(scopes, ends, strict=False):
        first, last = max(scope.start, start), min(end, stop)
        if first < last:
            spans.append(CrossSpan(first - start, last - start, find(scope.rows), scope.early))
    return spans


def rows_from(scopes: Sequence[Scope], position: int) -> list[range]:
    """Return the rows that tokens from `position` on attend to."""
    ends = [*(scope.start for scope in scopes[1:]), None]
    return [
        rows for scope, end in zip(scopes, ends, strict=False) if end is None or end > position for rows in scope.rows
    ]
