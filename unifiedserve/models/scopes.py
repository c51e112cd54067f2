"""Which visual tokens a prompt's tokens attend to, in models that read media through cross-attention."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from unifiedserve.attention import CrossSpan


class Scope(NamedTuple):
    """Tokens from `start` on, up to the next scope's, attend to these rows of their request's visual tokens.

    The last scope goes on in the answer. One that is `early` comes before the first medium.
    """

    start: int
    rows: Sequence[range]
    early: bool = False


def cross_spans(
    scopes: Sequence[Scope], start: int, stop: int, find: Callable[[Sequence[range]], Tensor]
) -> list[CrossSpan]:
    """Tokens [start, stop) of a sequence by their scopes; `find` tells which rows of the buffer a request's are."""
    ends = [*(scope.start for scope in scopes[1:]), stop]
    spans = []
    for scope, end in zip(scopes, ends, strict=False):
        first, last = max(scope.start, start), min(end, stop)
        if first < last:
            spans.append(CrossSpan(first - start, last - start, find(scope.rows), scope.early))
    return spans


def rows_from(scopes: Sequence[Scope], position: int) -> list[range]:
    """What tokens from `position` on attend to."""
    ends = [*(scope.start for scope in scopes[1:]), None]
    return [
        rows for scope, end in zip(scopes, ends, strict=False) if end is None or end > position for rows in scope.rows
    ]
