"""Whatever requests come and however small the buffers, every request that fits alone finishes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unifiedserve.config import PLACEMENTS, Stage
from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulator import Arrival, FreePages, Rules, Simulator

PAGE = 4
KV, VISUAL, PATCH = 12, 8, 8

INSTANCES: dict[str, list[tuple[Stage, ...]]] = {
    **{name: [instance.stages for instance in placement.instances] for name, placement in PLACEMENTS.items()},
    "e-p-d": [(Stage.ENCODE,), (Stage.PREFILL,), (Stage.DECODE,)],
    "ed-p": [(Stage.ENCODE, Stage.DECODE), (Stage.PREFILL,)],
}


def pages(tokens: int) -> int:
    return -(-tokens // PAGE)


def fits(job: Arrival) -> bool:
    tokens = sum(job.gaps) + sum(job.units) + job.generate
    visual = sum(map(pages, job.units))
    return tokens > 0 and pages(tokens) <= KV and visual <= VISUAL and len(job.units) <= PATCH


@st.composite
def jobs(draw: st.DrawFn) -> Arrival:
    units = draw(st.lists(st.integers(1, 8), max_size=4))
    gaps = draw(st.lists(st.integers(0, 10), min_size=len(units), max_size=len(units)))
    last, generate = draw(st.integers(1, 10)), draw(st.integers(1, 20))
    ticket = Ticket(0, draw(st.integers(0, 30)), draw(st.integers(-1, 1)))
    return Arrival(ticket, [*gaps, last], units, generate)


def numbered(work: list[Arrival]) -> list[Arrival]:
    return [job._replace(ticket=Ticket(uid, job.ticket.arrival, job.ticket.priority)) for uid, job in enumerate(work)]


@pytest.mark.parametrize("instances", INSTANCES)
@settings(max_examples=150, deadline=None)
@given(
    st.lists(jobs().filter(fits), min_size=1, max_size=8).map(numbered),
    st.integers(0, 9),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.5, 3.0]),
    st.booleans(),
    st.sampled_from([Rules(), Rules(whole_units=True), Rules(keeps_visual=True)]),
)
def test_every_request_finishes_and_pages_return(
    instances: str,
    work: list[Arrival],
    prefill: int,
    encode: int,
    running: int,
    reserve: int,
    target: float,
    overlap: bool,
    rules: Rules,
) -> None:
    budget = Budget(prefill, encode, running, PAGE, reserve, target, overlap=overlap)
    simulator = Simulator(INSTANCES[instances], budget, FreePages(KV, VISUAL, PATCH), work, rules)
    for _ in range(4000):
        simulator.step()
        if simulator.done:
            break
    assert simulator.finished.keys() == {job.ticket.uid for job in work}, "a request is stuck"
    assert simulator.free == FreePages(KV, VISUAL, PATCH)
