"""The largest steps that end in time are found, whatever a step of some size takes."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Stage, read_placement
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.profile import LEAST_TOKENS, MOST_TOKENS, StepSeconds, profiled
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Simulator, StageCosts
from unifiedserve.scheduling.step_costs import StepCosts, largest_tried
from unifiedserve.scheduling.turn import Begin, Facts, Free, Shape, Turn

BUDGET = Budget(prefill_tokens=512, encode_tokens=512, max_running=8, kv_page_tokens=16, step_seconds=0.5)


def line(fixed: float, token: float) -> Callable[[int], float]:
    return lambda tokens: fixed + tokens * token


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=300),
    st.floats(0, 2000),
    st.integers(1, 400),
    st.integers(1, 20),
)
def test_what_is_found_fits_and_twice_that_is_never_tried_before(
    steps: list[float], cap: float, most: int, least: int
) -> None:
    """Seconds that only grow with the size, in any way."""
    tried: list[int] = []

    def seconds(tokens: int) -> float:
        tried.append(tokens)
        return sum(steps[: tokens // 2]) + 0.001 * tokens

    found = largest_tried(seconds, cap, most, least)
    assert least <= found <= max(most, least)
    assert found == least or seconds(found) <= cap
    assert all(size <= most or size == least for size in tried)
    longest = max((size for size in range(least, most + 1) if seconds(size) <= cap), default=least)
    assert longest - longest // 8 - 1 <= found <= longest


@given(st.floats(1e-5, 1e-2), st.floats(0, 0.1), st.floats(0.01, 2), st.floats(1, 4))
def test_a_longer_step_is_never_a_smaller_one(token: float, fixed: float, cap: float, more: float) -> None:
    seconds = line(fixed, token)
    least = largest_tried(seconds, cap, MOST_TOKENS, LEAST_TOKENS)
    assert largest_tried(seconds, cap * more, MOST_TOKENS, LEAST_TOKENS) >= least - least // 16


def test_the_two_budgets_are_found_apart() -> None:
    found = profiled(BUDGET, StepSeconds(line(0.0, 0.001), line(0.1, 0.002)), 0.0).budget
    assert found.prefill_tokens == pytest.approx(500, abs=500 / 16)
    assert found.encode_tokens == pytest.approx(200, abs=200 / 16)
    assert found == replace(BUDGET, prefill_tokens=found.prefill_tokens, encode_tokens=found.encode_tokens)


def test_the_first_steps_go_by_what_was_tried() -> None:
    """Not by a guess: HydraInfer's algorithm fills the step that a new worker takes first."""
    steps = StepSeconds(line(0.01, 0.001), line(0.1, 0.002))
    budget, tried = profiled(replace(BUDGET, scheduling="stage-level", step_cap=0.5), steps, 0.0)
    assert tried.passes.parts == pytest.approx((0.01, 0.001))
    assert tried.batches.parts == pytest.approx((0.1, 0.002))
    first = {}
    for known in (tried, StepCosts()):
        turn = Turn([Stage.PREFILL], budget, rests=True, steps=known)
        turn.note(Begin(Ticket(1, 0.0), Shape(4000, 250)))
        (chunk,) = turn.take(Facts(1.0, Free(1000, 1000))).plan.prefill
        first[known] = chunk.stop
    assert first[StepCosts()] == 32
    assert first[tried] == pytest.approx(490, abs=490 / 8)


@pytest.mark.parametrize(("seconds", "tokens"), [(line(9.0, 0.0), LEAST_TOKENS), (line(0.0, 0.0), MOST_TOKENS)])
def test_both_ends(seconds: Callable[[int], float], tokens: int) -> None:
    found = profiled(BUDGET, StepSeconds(seconds, seconds), 0.0).budget
    assert (found.prefill_tokens, found.encode_tokens) == (tokens, tokens)


@pytest.mark.parametrize("placement", ["monolithic", "ed-p", "e-p-d"])
def test_simulated_streams_beside_a_long_prompt_keep_to_the_target(placement: str) -> None:
    """HydraInfer's claim of Alg. 1: each step ends within the target, whichever stages an instance hosts."""
    costs = StageCosts(decode_pass=0.01, prefill_pass=0.01, prompt_token=0.0004, lone_step=0.01)
    budget = replace(BUDGET, prefill_tokens=4096, slo_tbt=0.1)
    arrivals = [Arrival(Ticket(1, 0.0), [16], [], 60), Arrival(Ticket(2, 0.3), [4000], [], 4)]

    def longest_gap() -> float:
        simulator = Simulator(
            read_placement(placement, range(2)),
            budget,
            FreePages(10_000, 100, 100),
            arrivals,
            costs,
            Cores(2),
            profiles=True,
        )
        simulator.run()
        times = simulator.tokens[1]
        return max(later - before for before, later in pairwise(times))

    assert longest_gap() <= 0.1 + 1e-9
