"""Buffers of a planned server: their pages, and the requests that they are too small for."""

import msgspec
import pytest
from planned_cases import gpus, profile, requests

from unifiedserve.bench.slo import Slo
from unifiedserve.config import Order
from unifiedserve.config.memory import MIB, MemoryOptions
from unifiedserve.models.families.qwen2_5_vl.rules import MediaRules
from unifiedserve.placement import Stage
from unifiedserve.planning.bounds import most_throughput
from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.case import Case
from unifiedserve.planning.explanation import explain
from unifiedserve.planning.pages import free_pages
from unifiedserve.planning.planner import make_plan
from unifiedserve.planning.search import Effort
from unifiedserve.planning.work import least_work
from unifiedserve.planning.workload import RequestSize, Workload
from unifiedserve.profiles import HardwareProfile, ModelSizes

SMALL: HardwareProfile = msgspec.structs.replace(  # 64 pages of the KV cache
    profile(), model_sizes=ModelSizes(kv_token_bytes=1 << 20, image_tokens=100, frame_tokens=20)
)
TARGETS = Slo(ttft=5.0, tbt=1.0)
ON_CORES, ON_GPUS = "v+ep+d", "v@cuda:0+ep@cuda:0+d@cuda:1"


def with_one(large: RequestSize) -> Workload:
    """Return requests of which the fourth is another one."""
    sizes = [each if number != 3 else large for number, each in enumerate(requests(12).requests)]
    return Workload("one is large", tuple(sizes), tuple(map(float, range(12))))


@pytest.mark.parametrize("order", ["fcfs", "slack", "shortest"])
@pytest.mark.parametrize(
    ("hardware", "placement", "large"),
    [
        (SMALL, ON_CORES, RequestSize("text", 5000, 4)),
        (SMALL, ON_CORES, RequestSize("text", 900, 400)),
        (gpus(), ON_GPUS, RequestSize("image", 30, 4, pixels=(80_000,) * 4000)),
    ],
)
def test_what_the_server_refuses_delays_nobody(
    hardware: HardwareProfile, placement: str, large: RequestSize, order: Order
) -> None:
    case = Case(hardware, with_one(large), TARGETS, frames=4)
    candidate = Candidate(method="", label="", placement=placement, devices=2, order=order)
    run = case.simulate(candidate, 0.5)
    assert run
    got = [len(record.token_times) for record in run.records]
    assert got == [0 if number == 3 else tokens for number, tokens in enumerate(case.tokens)]
    without = Workload("none is large", tuple(requests(12).requests), tuple(map(float, range(12))))
    assert most_throughput(case, candidate) >= most_throughput(Case(hardware, without, TARGETS, frames=4), candidate)


def test_media_that_go_through_a_window_are_no_reason_to_refuse() -> None:
    case = Case(gpus(), with_one(RequestSize("image", 30, 4, pixels=(80_000,) * 4000)), TARGETS)
    assert not case.refused(Candidate(method="", label="", placement="v@cuda:0+ep@cuda:0+d@cuda:0"))


def test_requests_that_are_all_refused_are_the_reason() -> None:
    tiny = msgspec.structs.replace(
        SMALL, model_sizes=msgspec.structs.replace(SMALL.model_sizes, kv_token_bytes=1 << 24)
    )
    for objective in ("goodput", "e2etp-cost"):
        found = make_plan(Case(tiny, requests(), TARGETS), 1, objective, Effort(trials=3))
        assert found.choices == []
        assert explain(found) == ["nothing serves these requests: some need more pages than there are"]


def test_a_patch_is_as_large_as_the_models() -> None:
    rules, sizes = MediaRules(min_pixels=1, max_pixels=1), MemoryOptions()
    candidate = Candidate(method="", label="", placement=ON_CORES)
    free = free_pages(profile(), candidate.table(2))
    assert free
    assert free.patch == sizes.patch_buffer_mib * MIB // (sizes.patch_page_rows * rules.row_bytes)


def test_visual_tokens_that_answers_attend_to_are_no_part_of_the_prompt() -> None:
    """Their model's requests are those of texts, for the KV cache and for prefill; they are encoded all the same."""
    sizes = msgspec.structs.replace(SMALL.model_sizes, keeps_visual=True)
    beside: HardwareProfile = msgspec.structs.replace(SMALL, model_sizes=sizes)
    large = RequestSize("image", 30, 4, pixels=(80_000,) * 15)  # more visual tokens than the KV cache has room for
    workload = Workload("images", (large, large), (0.0, 1.0))
    candidate = Candidate(method="", label="", placement=ON_CORES)
    within, kept = Case(SMALL, workload, TARGETS), Case(beside, workload, TARGETS)
    assert len(within.refused(candidate)) == 2
    assert not kept.refused(candidate)
    run = kept.simulate(candidate, 0.1)
    assert run
    assert [len(record.token_times) for record in run.records] == kept.tokens
    assert {record.prompt_tokens for record in run.records} == {30}
    work = least_work(kept.arrivals[0], beside, candidate)
    assert work[Stage.PREFILL] < work[Stage.ENCODE] / 10
