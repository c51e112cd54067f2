"""Find the largest steps that end in time, by trying once before there are requests."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import NamedTuple

from unifiedserve.scheduling.pacing import room_beside
from unifiedserve.scheduling.state import Budget
from unifiedserve.scheduling.step_costs import Line, StepCosts, largest_tried, largest_within
from unifiedserve.scheduling.tbt_control import LEAST_SHARE

LEAST_TOKENS = 16  # that a profiled budget has in any case: a step with fewer takes about as long
MOST_TOKENS = 8192
_SIZES = (128, 1024)  # of steps whose costs are known from before


class StepSeconds(NamedTuple):
    """Time the steps of an instance (seconds): passes over prompt tokens, batches of visual tokens."""

    prompt: Callable[[int], float]
    visual: Callable[[int], float]


def largest_share(seconds: Callable[[float], float], target: float) -> float:
    """Return the largest multiple of LEAST_SHARE whose step stays within the target.

    `seconds` takes a step with some share of the budgets and says how long it was: longer with more. It is asked as
    often as a binary search takes, at most six times. Where no share reaches the target, the least is returned.
    """
    parts = round(1 / LEAST_SHARE)
    return largest_within(lambda part: seconds(part / parts), target, parts, least=1) / parts


def known_costs(steps: StepSeconds) -> StepCosts:
    """Return the costs of steps as if some had just been measured. Those that follow soon outweigh them."""
    passes = batches = Line()
    for tokens in _SIZES:
        passes, batches = passes.after(tokens, steps.prompt(tokens)), batches.after(tokens, steps.visual(tokens))
    return StepCosts(passes, batches)


class Profile(NamedTuple):
    """Hold a budget that was found by trying, and the seconds of the steps tried."""

    budget: Budget
    steps: StepCosts


def profiled(budget: Budget, steps: StepSeconds, lone_step: float) -> Profile:
    """Return the budget with the most prompt and visual tokens whose steps end in time.

    In an instance whose decode step alone takes `lone_step` seconds, that is within the target between tokens, with
    such a step; elsewhere (0: it does not decode) in the time that short requests may have to wait.
    """
    cap = room_beside(budget, lone_step) if lone_step and budget.slo_tbt else budget.step_seconds
    prompt, passes = _tried(steps.prompt, cap)
    visual, batches = _tried(steps.visual, cap)
    return Profile(replace(budget, prefill_tokens=prompt, encode_tokens=visual), StepCosts(passes, batches))


def _tried(seconds: Callable[[int], float], cap: float) -> tuple[int, Line]:
    """Return the largest size whose step ends in time. The line goes through all steps taken."""
    line = Line()

    def take(tokens: int) -> float:
        nonlocal line
        took = seconds(tokens)
        if 0 < took < inf:  # else there was no such step
            line = line.after(tokens, took)
        return took

    return largest_tried(take, cap, MOST_TOKENS, LEAST_TOKENS), line
