"""Whatever requests come and however small the buffers, every request that fits alone finishes."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from systems import COSTS, KV, LAYOUTS, PAGE, PARTS, budgets, free_pages, rules, simulated, works

from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, FreePages, Rules, StageCosts


@pytest.mark.parametrize("placement", LAYOUTS)
@settings(max_examples=40)
@given(works, budgets, st.sampled_from(COSTS), rules, st.booleans())
def test_every_request_finishes_and_pages_return(
    placement: str, work: list[Arrival], budget: Budget, costs: StageCosts, kept: Rules, dual_streams: bool
) -> None:
    assume(not (kept.keeps_visual and LAYOUTS[placement].sends_back))  # which an engine refuses
    simulator = simulated(placement, work, budget, costs, kept, dual_streams)
    assert simulator.unfinished == [], "a request is stuck"
    assert all(free == free_pages() for free in simulator.frees.values())


@pytest.mark.parametrize("placement", ["shared", "monolithic", *PARTS])
@settings(max_examples=30)
@given(works, budgets, st.sampled_from(COSTS), st.booleans())
def test_media_larger_than_their_buffers_go_through(
    placement: str, work: list[Arrival], budget: Budget, costs: StageCosts, whole_units: bool
) -> None:
    """The buffers hold two units, or one: each has up to two pages."""
    small = FreePages(KV, 3, 2, visual_page_tokens=PAGE)
    kept = Rules(whole_units=whole_units)
    simulator = simulated(placement, work, replace(budget, overlap=True), costs, kept, free=replace(small))
    assert simulator.unfinished == [], "a request is stuck"
    assert all(free == small for free in simulator.frees.values())
