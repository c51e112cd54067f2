"""The largest steps that end in time, tried out once before there are requests."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from unifiedserve.scheduling.state import Budget
from unifiedserve.scheduling.tbt_control import LEAST_SHARE

LEAST_TOKENS = 16  # that a profiled budget has in any case: a step with fewer takes about as long
MOST_TOKENS = 8192
_EXACT = 16  # a budget is found to within that part of itself


class StepSeconds(NamedTuple):
    """What steps of an instance take (seconds): passes over so many prompt tokens, batches of so many visual ones."""

    prompt: Callable[[int], float]
    visual: Callable[[int], float]


def largest_within(seconds: Callable[[int], float], cap: float, most: int, least: int = 1) -> int:
    """Return how large a step may be, from `least` to `most`, to take no longer than the cap (seconds).

    `seconds` takes a step of some size and says how long it was: longer with more. Sizes are doubled until one is too
    long, then halved towards it: nothing is tried that is more than twice too large. What cannot be reached is the
    least.
    """
    fits, too_much = least, least
    while too_much <= most and seconds(too_much) <= cap:
        fits, too_much = too_much, 2 * too_much
    too_much = min(too_much, most + 1)
    return _halve(seconds, cap, fits, too_much, max(1, fits // _EXACT)) if fits < too_much else fits


def largest_share(seconds: Callable[[float], float], target: float) -> float:
    """Return the largest share, a multiple of LEAST_SHARE, whose step takes no longer than the target.

    `seconds` takes a step with some share of the budgets and says how long it was: longer with more. It is asked as
    often as a binary search takes, at most six times. What cannot be reached is the least.
    """
    parts = round(1 / LEAST_SHARE)
    if seconds(1.0) <= target:
        return 1.0
    return _halve(lambda number: seconds(number / parts), target, 1, parts, 1) / parts


def profiled(budget: Budget, steps: StepSeconds, cap: float) -> Budget:
    """Return the budget with the most prompt and visual tokens whose steps take no longer than the cap (seconds).

    HydraInfer Alg. 1: both are found by binary search before there are requests. The cap is the target between tokens
    where decode is hosted, less a step of decode, which goes along; elsewhere a part of the target for first tokens, as
    UnifiedServe Alg. 3 has it for its two budgets.
    """
    prompt, visual = (largest_within(seconds, cap, MOST_TOKENS, LEAST_TOKENS) for seconds in steps)
    return replace(budget, prefill_tokens=prompt, encode_tokens=visual)


def _halve(seconds: Callable[[int], float], cap: float, fits: int, too_much: int, apart: int) -> int:
    while too_much - fits > apart:
        middle = (fits + too_much) // 2
        fits, too_much = (middle, too_much) if seconds(middle) <= cap else (fits, middle)
    return fits
