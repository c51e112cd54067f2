"""Bounds rule out only what the simulator would not accept either."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_cases import gpus, profile

from unifiedserve.bench.slo import Slo
from unifiedserve.planning.bounds import most_goodput, most_throughput
from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.case import Case
from unifiedserve.planning.goodput import Wanted, attained, score
from unifiedserve.planning.layouts import layouts
from unifiedserve.planning.workload import RequestSize, Workload
from unifiedserve.profiles import HardwareProfile

HARDWARE = {"cores": (profile(4), 1), "gpus": (gpus(), 3)}  # with the devices
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


def candidates(hardware: HardwareProfile, devices: int) -> st.SearchStrategy[Candidate]:
    return st.builds(
        lambda layout, **options: Candidate(
            method="", label=layout.label, placement=layout.placement, devices=layout.devices, **options
        ),
        st.sampled_from(layouts(hardware.device, devices)),
        dual_streams=st.sampled_from(["auto", "on"]),
        prefill_chunk_tokens=st.sampled_from([256, 1024, 8192]),
        encode_budget_tokens=st.sampled_from([256, 4096]),
        max_running=st.sampled_from([1, 8, 64]),
        targets=st.booleans(),
    )


@pytest.mark.parametrize("kind", HARDWARE)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), workload=workloads(), ttft=st.floats(0.02, 4.0), tbt=st.floats(0.02, 0.5))
def test_goodput_bounds(kind: str, data: st.DataObject, workload: Workload, ttft: float, tbt: float) -> None:
    hardware, devices = HARDWARE[kind]
    candidate = data.draw(candidates(hardware, devices))
    case = Case(hardware, workload, Slo(ttft=ttft, tbt=tbt), frames=4)
    bound = most_goodput(case, candidate)
    if bound < float("inf"):
        assert attained(case, candidate, bound * data.draw(st.floats(1.000001, 3.0))) is None


@pytest.mark.parametrize("kind", HARDWARE)
@settings(max_examples=10, deadline=None)
@given(data=st.data(), workload=workloads())
def test_throughput_bounds(kind: str, data: st.DataObject, workload: Workload) -> None:
    hardware, devices = HARDWARE[kind]
    candidate = data.draw(candidates(hardware, devices))
    case = Case(hardware, workload, Slo(), frames=4)
    found = score(case, candidate, Wanted("e2etp-cost"))
    assert found.value <= most_throughput(case, candidate) * 1.000001


def test_the_bound_is_close_where_all_is_busy() -> None:
    same = Workload("texts", (RequestSize("text", 1500, 1),) * 40, tuple(map(float, range(40))))
    case, candidate = Case(profile(4), same, Slo(), frames=4), Candidate(method="", label="", placement="vepd")
    reached = score(case, candidate, Wanted("e2etp-cost")).value
    assert 0.9 * most_throughput(case, candidate) < reached
