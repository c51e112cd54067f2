"""Tell the outcome of a search in words."""

import math
from collections.abc import Sequence

from unifiedserve.bench.goodput.search import Found


def describe(found: Found, scales: Sequence[float]) -> str:
    """Return the goodput, or why there is none.

    `scales` are the factors on the targets that requests would have needed when they were alone.
    """
    ended = "the search was interrupted; so far: " if found.interrupted else ""
    if found.rate is not None:
        above = (
            f", less than {found.too_high:g}/s" if found.too_high else " or more: no rate that was tried is too high"
        )
        return f"{ended}goodput {found.rate:g}/s{above} ({found.goal.attainment:.0%} hold their targets)"
    if found.probes:
        return f"{ended}no goodput: not even {found.too_high or found.goal.first:g}/s holds the targets"
    if found.interrupted:
        return f"{ended}nothing"
    return f"no goodput: requests that are alone miss the targets; {_achievable(scales, found.goal.attainment)}"


def _achievable(scales: Sequence[float], goal: float) -> str:
    """Say by which factor the targets are too short for the goal."""
    ordered = sorted(scales)
    needed = ordered[math.ceil(goal * len(ordered)) - 1] if ordered else math.inf
    if math.isinf(needed):
        return "too many of them fail"
    return f"targets {needed:.2f} times as long would do"
