"""Simulated workers that die: every request gets all of its tokens, and every page comes back."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from systems import COSTS, KV, LAYOUTS, MEMORIES, PARTS, PATCH, VISUAL, budgets, free_pages, numbered, rules, works

from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import NAMED, read_placement
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Gpus, Rules, Sharing, Simulator, StageCosts

STEPS = StageCosts(decode_pass=1.0, prefill_pass=1.0, encode_batch=1.0, message=0.001, worker_start=10.0)
PLENTY = Budget(prefill_tokens=64, encode_tokens=64, max_running=8, kv_page_tokens=16)


@given(
    st.sampled_from([*NAMED, *PARTS, *MEMORIES]),
    works,
    budgets,
    st.sampled_from(COSTS),
    rules,
    st.sampled_from([Cores(2), Gpus(3, 2)]),
    st.lists(st.tuples(st.floats(0, 120), st.integers(0, 9)), min_size=1, max_size=4),
    st.floats(0.1, 20),
    st.booleans(),
)
def test_every_request_ends_and_every_page_comes_back(
    placement: str,
    work: list[Arrival],
    budget: Budget,
    costs: StageCosts,
    kept: Rules,
    sharing: Sharing,
    chosen: list[tuple[float, int]],
    start: float,
    dual_streams: bool,
) -> None:
    table = LAYOUTS[placement]
    assume(not (kept.keeps_visual and table.sends_back))  # which an engine refuses
    deaths = [(time, table.instances[number % len(table.instances)].name) for time, number in chosen]
    costs = StageCosts(**{name: getattr(costs, name) for name in costs.__struct_fields__} | {"worker_start": start})
    simulator = Simulator(
        table, budget, free_pages(), work, costs, sharing, kept, dual_streams=dual_streams, deaths=deaths
    )
    simulator.run(until=20_000)
    assert simulator.unfinished == []
    assert all(len(simulator.tokens[job.ticket.uid]) == job.generate for job in work)
    assert all(list(times) == sorted(times) for times in simulator.tokens.values())
    assert all((free.kv, free.visual, free.patch) == (KV, VISUAL, PATCH) for free in simulator.frees.values())


def tokens(placement: str, arrivals: list[Arrival], deaths: list[tuple[float, str]]) -> dict[int, list[float]]:
    free = FreePages(1000, 1000, 1000)
    simulator = Simulator(read_placement(placement, ()), PLENTY, free, arrivals, STEPS, Gpus(2, 1), deaths=deaths)
    simulator.run()
    return simulator.tokens


def test_an_answer_goes_on_where_it_was_when_decode_dies() -> None:
    text = [Arrival(Ticket(0, 0.0), [32], [], 20)]
    before, after = (tokens("vep@cuda:0+d@cuda:0", text, deaths)[0] for deaths in ([], [(5.5, "decode")]))
    assert after[:5] == before[:5]  # the step under way is lost
    assert [late - early for early, late in zip(before[5:], after[5:], strict=True)] == [after[5] - before[5]] * 15
    assert 10 <= after[5] - before[5] <= 11


def test_a_prompt_begins_anew_when_its_worker_dies_and_answers_do_not_wait() -> None:
    texts = numbered([Arrival(Ticket(0, 0.0), [32], [], 20), Arrival(Ticket(0, 4.0), [32], [], 2)])
    before, after = (tokens("vep@cuda:0+d@cuda:0", texts, deaths) for deaths in ([], [(4.5, "vision-encode-prefill")]))
    assert after[0] == pytest.approx(before[0])
    assert after[1][0] >= 4.5 + STEPS.worker_start > before[1][0]
