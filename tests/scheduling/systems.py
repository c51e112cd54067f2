"""Small systems for property tests: placements, costs, requests and budgets that fit into few pages."""

import msgspec
from hypothesis import strategies as st

from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import NAMED, read_placement
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Rules, Simulator, StageCosts

PAGE = 4
KV, VISUAL, PATCH = 12, 8, 8

PARTS = ("e+pd", "e+p+d", "2e+2p+2d", "3ep+d", "ed+2p", "2v+2e+p+d")
#: with pages that travel, of units, of answers, or of both
MEMORIES = (
    "e+pd@mem1",
    "e+p@mem1+d@mem2",
    "2e+2p@mem1+2d@mem2",
    "ep+d@mem1",
    "ed+2p@mem1",
    "2v+e+e@mem1+p@mem2+pd@mem2",
)
LAYOUTS = {name: read_placement(name, range(2)) for name in (*NAMED, *PARTS, *MEMORIES)}
COSTS = [
    StageCosts(decode_pass=1, prefill_pass=1, encode_batch=1),
    StageCosts(decode_pass=1, prefill_pass=1, encode_batch=1, prompt_token=0.1, visual_token=0.2, message=0.3),
    StageCosts(decode_pass=1, prefill_pass=1, encode_batch=1, visual_token=0.2, encoder_layers=3, message=0.3),
]


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
    arrival, work = draw(st.integers(0, 30)), draw(st.sampled_from([0.0, 1.0, 30.0]))
    due = arrival + draw(st.sampled_from([0.0, 2.0, 50.0, float("inf")]))
    ticket = Ticket(0, arrival, draw(st.integers(-1, 1)), due, work)
    return Arrival(ticket, [*gaps, last], units, generate, decode=1, gop=draw(st.integers(0, 2)))


def numbered(work: list[Arrival]) -> list[Arrival]:
    return [job._replace(ticket=msgspec.structs.replace(job.ticket, uid=uid)) for uid, job in enumerate(work)]


budgets = st.builds(
    Budget,
    prefill_tokens=st.integers(0, 9),
    encode_tokens=st.integers(1, 9),
    max_running=st.integers(1, 4),
    kv_page_tokens=st.just(PAGE),
    kv_reserve=st.integers(0, 3),
    slo_tbt=st.sampled_from([0.0, 0.5, 3.0]),
    order=st.sampled_from(["fcfs", "slack", "shortest"]),
    short_tokens=st.sampled_from([0, 6, 18]),
    step_seconds=st.sampled_from([0.5, 4.0, 1e6]),
    overlap=st.booleans(),
    scheduling=st.sampled_from(["adaptive", "stage-level", "prefill-encode"]),
    step_cap=st.sampled_from([0.0, 1.5, 4.0]),
)

works = st.lists(jobs().filter(fits), min_size=1, max_size=8).map(numbered)
rules = st.sampled_from([Rules(), Rules(whole_units=True), Rules(keeps_visual=True)])


def free_pages() -> FreePages:
    return FreePages(KV, VISUAL, PATCH, visual_page_tokens=PAGE)


def simulated(
    placement: str,
    work: list[Arrival],
    budget: Budget,
    costs: StageCosts,
    kept: Rules,
    dual_streams: bool = False,
    free: FreePages | None = None,
) -> Simulator:
    """Return a system in which all has happened that will."""
    placed, free = LAYOUTS[placement], free or free_pages()
    simulator = Simulator(placed, budget, free, work, costs, Cores(2), kept, dual_streams=dual_streams)
    simulator.run(until=8000)
    return simulator
