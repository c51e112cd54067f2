"""Bounds rule out only what the simulator would not accept either."""

from hypothesis import given, settings
from hypothesis import strategies as st
from planned_cases import profile

from unifiedserve.bench.slo import Slo
from unifiedserve.planning.bounds import most_goodput, most_throughput
from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.case import Case
from unifiedserve.planning.goodput import Wanted, attained, score
from unifiedserve.planning.layouts import layouts
from unifiedserve.planning.workload import RequestSize, Workload

CORES = 4
LAYOUTS = layouts(profile(CORES).device, 1)
SIZES = st.one_of(
    st.builds(RequestSize, st.just("text"), st.integers(1, 2000), st.integers(1, 12)),
    st.builds(
        RequestSize,
        st.just("image"),
        st.integers(1, 100),
        st.integers(1, 8),
        pixels=st.lists(st.integers(10_000, 500_000), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(
        RequestSize, st.just("video"), st.integers(1, 100), st.integers(1, 8), seconds=st.tuples(st.floats(1.0, 60.0))
    ),
)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    sizes = draw(st.lists(SIZES, min_size=2, max_size=8))
    gaps = draw(st.lists(st.floats(0.1, 2.0), min_size=len(sizes) - 1, max_size=len(sizes) - 1))
    times = [sum(gaps[:number]) / sum(gaps) * (len(sizes) - 1) for number in range(len(sizes))]
    return Workload("drawn", tuple(sizes), tuple(times))


def candidates() -> st.SearchStrategy[Candidate]:
    return st.builds(
        lambda layout, **options: Candidate(method="", label=layout.label, placement=layout.placement, **options),
        st.sampled_from(LAYOUTS),
        prefill_chunk_tokens=st.sampled_from([256, 1024, 8192]),
        encode_budget_tokens=st.sampled_from([256, 4096]),
        max_running=st.sampled_from([1, 8, 64]),
        targets=st.booleans(),
    )


@settings(max_examples=40, deadline=None)
@given(workloads(), candidates(), st.floats(0.02, 4.0), st.floats(0.02, 0.5), st.floats(1.0, 3.0))
def test_goodput_bounds(workload: Workload, candidate: Candidate, ttft: float, tbt: float, beyond: float) -> None:
    case = Case(profile(CORES), workload, Slo(ttft=ttft, tbt=tbt), frames=4)
    bound = most_goodput(case, candidate)
    if bound < float("inf"):
        assert attained(case, candidate, bound * beyond * 1.000001) is None


@settings(max_examples=25, deadline=None)
@given(workloads(), candidates())
def test_throughput_bounds(workload: Workload, candidate: Candidate) -> None:
    case = Case(profile(CORES), workload, Slo(), frames=4)
    found = score(case, candidate, Wanted("e2etp-cost"))
    assert found.value <= most_throughput(case, candidate) * 1.000001
