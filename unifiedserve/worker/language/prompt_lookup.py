"""Draft by prompt look-up: a text that has come to where it was before may go on as it did then.

So it does in answers that quote, edit or sum up their prompts, and in lists and tables (Saxena: Prompt Lookup Decoding,
2023, github.com/apoorvumang/prompt-lookup-decoding). It takes no second model.
"""

import numpy as np
from numpy.typing import NDArray

#: last tokens that must be the same: the longer match is the better guide, one of a single token is none
LONGEST, SHORTEST = 3, 2


def look_up(tokens: NDArray[np.intc], most: int) -> list[int]:
    """Return the `most` tokens after the latest earlier place that ends like tokens [n]. n > 0; [] without one.

    The tokens may reach to the end of all: it goes on from its own start then, as a text with a period does.
    """
    if most < 1 or (start := _after_match(tokens)) is None:
        return []
    followed: list[int] = tokens[start : start + most].tolist()
    return [followed[i % len(followed)] for i in range(most)]


def _after_match(tokens: NDArray[np.intc]) -> int | None:
    """Return what comes after the latest of the longest matches."""
    start = None
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])
    for length in range(2, LONGEST + 1):
        ends = ends[ends >= length - 1]
        if len(ends):
            ends = ends[tokens[ends - length + 1] == tokens[-length]]
        if len(ends) and length >= SHORTEST:
            start = int(ends[-1]) + 1
    return start
