"""Simulated GPUs: who runs beside whom on which device takes as much longer as a matrix says."""

from unittest.mock import patch

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from systems import LAYOUTS, budgets, free_pages, numbered, rules, works

from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Stage, read_placement
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import (
    Arrival,
    FreePages,
    Gpus,
    Hardware,
    Rules,
    Simulated,
    Simulator,
    StageCosts,
    simulate,
)
from unifiedserve.scheduling.simulation.machine import Demand
from unifiedserve.scheduling.simulation.sequences import Sequences

V, E, P, D = Stage
SLOWER = {D: {P: 2.0, E: 1.5, D: 1.25}, P: {D: 4.0, V: 1.25}, V: {P: 3.0}}
COSTS = StageCosts(
    decode_pass=0.01,
    prefill_pass=0.02,
    prompt_token=1e-5,
    encode_batch=0.01,
    visual_token=1e-5,
    message=0.0005,
    pull=0.001,
    pull_kv_page=1e-5,
    pull_visual_page=1e-6,
    lone_step=0.01,
)
PAGES = 10_000
#: so that no two things happen at one time by chance
ODD = StageCosts(
    decode_pass=1.0317,
    sequence=0.0113,
    context_token=0.00171,
    prefill_pass=0.9137,
    prompt_token=0.1019,
    encode_batch=0.8713,
    visual_token=0.2039,
    message=0.0293,
    pull=0.0411,
    pull_kv_page=0.0173,
    pull_visual_page=0.0131,
)


def on(device: int | None, *stages: Stage) -> tuple[Demand, ...]:
    return tuple(Demand(1, stage=stage, device=device) for stage in stages)


def seen(placement: str, arrivals: list[Arrival], gpus: Gpus, costs: StageCosts = COSTS) -> Simulated:
    hardware = Hardware(costs, gpus, FreePages(PAGES, PAGES, PAGES))
    return simulate(read_placement(placement, ()), hardware, arrivals, EngineConfig.of(placement=placement))


def test_factors_of_stages_on_one_gpu_multiply() -> None:
    rates = Gpus(2, 2, SLOWER).rates
    assert list(rates(on(0, D, P))) == [1 / 2, 1 / 4]
    assert list(rates(on(0, D, P, E, D))) == [1 / (2 * 1.5 * 1.25), 1 / 16, 1, 1 / (2 * 1.5 * 1.25)]
    assert list(rates(on(0, D) + on(1, P))) == [1, 1]


def test_video_engines_work_beside_each_other_and_slow_others_once() -> None:
    rates = Gpus(1, 2, SLOWER).rates
    assert list(rates(on(0, V, V))) == [1, 1]
    assert list(rates(on(0, V, V, P))) == [1 / 3, 1 / 3, 1 / 1.25]
    assert list(rates(on(0, V, V, V, V))) == [1 / 2] * 4


def test_the_host_is_no_gpu() -> None:
    images = on(None, V, V, V)
    assert list(Gpus(1, 2, SLOWER).rates((*images, *on(0, P)))) == [1, 1, 1, 1]
    assert list(Gpus(1, 2, SLOWER, cores=2).rates((*images, *on(0, P)))) == pytest.approx([2 / 3] * 3 + [1])


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(Stage)), min_size=1, max_size=8))
def test_nothing_is_faster_for_others_and_other_gpus_do_not_matter(running: list[tuple[int, Stage]]) -> None:
    gpus = Gpus(3, 2, SLOWER)
    demands = [Demand(1, stage=stage, device=device) for device, stage in running]
    rates = gpus.rates(tuple(demands))
    assert all(0 < rate <= 1 for rate in rates)
    own = [demand for demand in demands if demand.device == running[0][0]]
    assert rates[0] == gpus.rates(tuple(own))[0]


def test_a_prompt_beside_streams_takes_as_long_as_the_matrix_says() -> None:
    stream = Arrival(Ticket(0, 0.0), [16], [], 200)
    prompt = Arrival(Ticket(1, 1.0), [500], [], 1)
    alone = seen("vep@cuda:0+d@cuda:0", [prompt], Gpus(1, 5)).ttft[1]
    beside = seen("vep@cuda:0+d@cuda:0", [stream, prompt], Gpus(1, 5, {P: {D: 1.5}})).ttft[1]
    apart = seen("vep@cuda:0+d@cuda:1", [stream, prompt], Gpus(2, 5, {P: {D: 1.5}})).ttft[1]
    assert beside - alone == pytest.approx(0.5 * COSTS.prefill(500, 125_000))
    assert apart == pytest.approx(alone)


def test_what_was_busy_and_waited_for() -> None:
    texts = numbered([Arrival(Ticket(0, 0.0), [500], [], 11)] * 3)
    told = seen("vep@cuda:0+d@cuda:1", texts, Gpus(2, 5))
    assert told.seconds * told.devices[1] == pytest.approx(told.seconds * told.busy[D])
    assert told.seconds * told.busy[D] >= 10 * COSTS.decode_pass
    assert told.waits[2][P] > told.waits[0][P] == pytest.approx(COSTS.message)
    assert (told.travel.reads >= 3, told.travel.kv_pages) == (True, 3 * -(-501 // 16))
    assert E not in told.mean_waits


TEN = {
    "one memory": ("2v@cuda:0+3e@cuda:0+2p@cuda:0+3d@cuda:0", 1),
    "a memory each": ("v@cuda:0+v@cuda:1+" + "+".join(map("{}@cuda:{}".format, "eeeppddd", range(8))), 8),
}


@pytest.mark.parametrize("roles", [False, True])
@pytest.mark.parametrize(("placement", "gpus"), TEN.values(), ids=TEN)
def test_ten_instances_serve_everything_and_share_it(placement: str, gpus: int, roles: bool) -> None:
    texts = [Arrival(Ticket(uid, 0.05 * uid), [300], [], 20) for uid in range(40)]
    images = [Arrival(Ticket(40 + uid, 0.005 * uid), [9, 9], [600], 20, decode=0.01, media=1) for uid in range(40)]
    table, free = read_placement(placement, ()), FreePages(PAGES, PAGES, PAGES)
    hardware = Hardware(COSTS, Gpus(gpus, 5), free)
    told = simulate(table, hardware, texts + images, EngineConfig.of(placement=placement), roles=roles)
    assert all(len(times) == 20 for times in told.tokens.values())
    assert set(told.devices) == set(range(gpus))
    assert told.busy[D] > 1  # several of them at once
    assert (told.travel.kv_pages, told.travel.visual_pages) == ((0, 0) if gpus == 1 else (40 * 19 + 40 * 39, 40 * 38))


def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="needs cuda:1, of 1 GPU"):
        seen("vep@cuda:0+d@cuda:1", [], Gpus(1, 5))


#: where no two workers of a stage may act at one time, in an order that is chance
SINGLE = [name for name, table in LAYOUTS.items() if all(len(table.hosts(stage)) == 1 for stage in Stage)]


#: a prompt comes while an answer fills the pages that it would need
TIGHT = [Arrival(Ticket(0, 25.0), [9], [], 1, decode=1), Arrival(Ticket(1, 0.0), [10, 10], [2], 16, decode=1)]
SMALL = Budget(prefill_tokens=4, encode_tokens=1, max_running=1, kv_page_tokens=4, step_seconds=0.5)


@given(st.sampled_from(SINGLE), works, budgets, rules)
@example("monolithic", TIGHT, SMALL, Rules())
def test_steps_that_run_as_one_come_when_they_would_one_by_one(
    placement: str, work: list[Arrival], budget: Budget, kept: Rules
) -> None:
    assume(not (kept.keeps_visual and LAYOUTS[placement].sends_back))  # which an engine refuses

    def tokens() -> dict[int, list[float]]:
        simulator = Simulator(LAYOUTS[placement], budget, free_pages(), work, ODD, Gpus(3, 2, SLOWER), kept)
        simulator.run(until=8000)
        return simulator.tokens

    together = tokens()
    with patch.object(Sequences, "steps", lambda self, keys: 1):
        one_by_one = tokens()
    assert {uid: pytest.approx(times, abs=1e-6) for uid, times in one_by_one.items()} == together
