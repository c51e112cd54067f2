"""The largest steps that end in time, tried out once before there are requests."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from unifiedserve.scheduling.state import Budget
from unifiedserve.scheduling.step_costs import largest_within
from unifiedserve.scheduling.tbt_control import LEAST_SHARE

LEAST_TOKENS = 16  # that a profiled budget has in any case: a step with fewer takes about as long
MOST_TOKENS = 8192
_NEAR = 16  # a budget is found to within that part of itself


class StepSeconds(NamedTuple):
    """What steps of an instance take (seconds): passes over so many prompt tokens, batches of so many visual ones."""

    prompt: Callable[[int], float]
    visual: Callable[[int], float]


def largest_share(seconds: Callable[[float], float], target: float) -> float:
    """Return the largest share, a multiple of LEAST_SHARE, whose step takes no longer than the target.

    `seconds` takes a step with some share of the budgets and says how long it was: longer with more. It is asked as
    often as a binary search takes, at most six times. What cannot be reached is the least.
    """
    parts = round(1 / LEAST_SHARE)
    return largest_within(lambda part: seconds(part / parts), target, parts, least=1) / parts


def profiled(budget: Budget, steps: StepSeconds, cap: float) -> Budget:
    """Return the budget with the most prompt and visual tokens whose steps take no longer than the cap (seconds).

    HydraInfer Alg. 1: both are found by binary search before there are requests. The cap is the target between tokens
    where decode is hosted, less a step of decode, which goes along; elsewhere a part of the target for first tokens, as
    UnifiedServe Alg. 3 has it for its two budgets.
    """
    prompt, visual = (largest_within(seconds, cap, MOST_TOKENS, LEAST_TOKENS, near=_NEAR) for seconds in steps)
    return replace(budget, prefill_tokens=prompt, encode_tokens=visual)
