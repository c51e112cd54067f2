"""What share of their budgets the encoder and prefill begin with: tried out once, before there are requests."""

from collections.abc import Callable

from unifiedserve.scheduling.tbt_control import LEAST_SHARE


def largest_share(seconds: Callable[[float], float], target: float) -> float:
    """Return the largest share, a multiple of LEAST_SHARE, whose step takes no longer than the target.

    `seconds` takes a step with some share of the budgets and says how long it was: longer with more. It is asked as
    often as a binary search takes, at most six times. What cannot be reached is the least.
    """
    parts = round(1 / LEAST_SHARE)
    if seconds(1.0) <= target:
        return 1.0
    fits, too_much = 1, parts
    while too_much - fits > 1:
        middle = (fits + too_much) // 2
        fits, too_much = (middle, too_much) if seconds(middle / parts) <= target else (fits, middle)
    return fits / parts
