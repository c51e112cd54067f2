"""A plan: what it says a placement reaches, the simulator says too; and what it says of what cannot be."""

import itertools
import os
import signal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned_cases import case, gpus, profile, requests

from unifiedserve.bench.slo import Slo
from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError
from unifiedserve.placement import Stage, read_placement
from unifiedserve.planning.bounds import most_throughput
from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.case import Case
from unifiedserve.planning.explanation import explain
from unifiedserve.planning.files import PLACEMENT, placement_file, write
from unifiedserve.planning.goodput import Score, Wanted, attained, highest, score
from unifiedserve.planning.plan import Choice, Plan
from unifiedserve.planning.planner import make_plan
from unifiedserve.planning.ranking import SHOWN, Ranking, Rated
from unifiedserve.planning.search import Effort, Tried
from unifiedserve.profiles import HardwareProfile, ModelSizes

EFFORT = Effort(trials=14, seed=3)


@pytest.fixture(scope="module")
def planned() -> Plan:
    return make_plan(case(), 1, "goodput", EFFORT)


def test_the_best_is_no_worse_than_the_default(planned: Plan) -> None:
    default = score(case(), Candidate(method="", label="", placement="v+ep+d"), Wanted("goodput"))
    assert planned.choices[0].value >= default.value > 0


def test_choices_are_other_placements_the_best_first(planned: Plan) -> None:
    assert 1 < len(planned.choices) <= SHOWN
    assert len({choice.placement for choice in planned.choices}) == len(planned.choices)
    values = [choice.value for choice in planned.choices]
    assert values == sorted(values, reverse=True)


def test_what_is_said_of_the_best_is_simulated(planned: Plan) -> None:
    best = planned.choices[0]
    candidate = candidate_of(best)
    assert attained(case(), candidate, best.value) == best.seen
    assert attained(case(), candidate, 1.05 * best.value) is None or 1.05 * best.value > highest(
        case(), candidate, "goodput"
    )
    assert best.seen.ttft_p50 <= best.seen.ttft_p90 <= 2.0  # type: ignore[operator]


def candidate_of(choice: Choice) -> Candidate:
    """Return the candidate that has these options."""
    known = {name: value for name, value in choice.options.items() if name in Candidate.__struct_fields__}
    return Candidate(
        method="", label=choice.label, placement=choice.placement, targets="slo_tbt" in choice.options, **known
    )


def test_no_goodput_is_above_what_lasts(planned: Plan) -> None:
    for choice in planned.choices:
        assert choice.value <= most_throughput(case(), candidate_of(choice))


def test_the_same_seed_finds_the_same() -> None:
    effort = Effort(trials=4, seed=3)
    one, two = (make_plan(case(), 1, "goodput", effort) for _ in range(2))
    assert (one.choices, one.simulations) == (two.choices, two.simulations)


def test_bounds_and_floors_spare_simulations(planned: Plan) -> None:
    assert planned.candidates <= EFFORT.trials
    assert 0 < planned.ruled_out < planned.candidates


def test_why_it_is_best(planned: Plan) -> None:
    lines = explain(planned)
    assert lines[0].startswith(f"{planned.choices[0].label} is best: ")
    reasons = lines[: len(planned.choices)]
    assert all("is the bottleneck" in line or "busiest" in line for line in reasons)
    for choice in planned.choices:
        assert set(choice.seen.busy) == set(Stage)
        assert all(0 < share <= 1 for share in choice.seen.busy.values())


def test_a_trace_that_is_over_too_soon_is_told_of(planned: Plan) -> None:
    assert "give more --requests" in explain(planned)[-1]
    assert "give more --requests" not in explain(msgspec.structs.replace(planned, requests=1000))[-1]


def test_serve_takes_the_options(planned: Plan) -> None:
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("the placement names cores that are not here")
    for choice in planned.choices:
        EngineConfig.of(placement=choice.placement, **choice.options).check()


def test_files(planned: Plan, tmp_path: Path) -> None:
    written = write(planned, tmp_path / "plan")
    assert msgspec.json.decode((tmp_path / "plan" / "plan.json").read_bytes(), type=Plan) == planned
    assert {path.name for path in written} == {PLACEMENT, "plan.json", "plan.svg"}
    assert "<svg" in (tmp_path / "plan" / "plan.svg").read_text()
    read = read_placement(str(tmp_path / "plan" / PLACEMENT), range(2))
    assert read.instances == read_placement(planned.choices[0].placement, range(2)).instances


@pytest.mark.parametrize("placement", ["v@cuda:0+ep@cuda:0+d@cuda:1", "v@0-1+2e@0-1+pd@2-3", "vepd"])
def test_a_placement_and_its_file_are_the_same(planned: Plan, placement: str, tmp_path: Path) -> None:
    path = tmp_path / "placement.toml"
    path.write_text(placement_file(msgspec.structs.replace(planned.choices[0], placement=placement)))
    read, same = read_placement(str(path), range(4)), read_placement(placement, range(4))
    assert (read.instances, read.gpus) == (same.instances, same.gpus)


def test_two_gpus() -> None:
    asked = Case(gpus(), requests(), Slo(ttft=0.8, tbt=0.2), frames=4)
    found = make_plan(asked, 2, "goodput", Effort(trials=8))
    values = {each.devices: each.value for each in found.front}
    assert values[1] < values[2]
    assert found.choices[0].devices == 2
    assert "cuda:1" in found.choices[0].placement


def test_weights_that_fit_where_others_are_not() -> None:
    """A GPU that cannot hold both networks can hold one."""
    small = msgspec.structs.replace(
        gpus(memory_gib=16.0), model_sizes=ModelSizes(weights_gib={"encoder": 8.0, "language": 8.0}, frame_tokens=20)
    )
    found = make_plan(Case(small, requests(), Slo(ttft=2.0), frames=4), 2, "goodput", Effort(trials=6))
    assert [choice.label for choice in found.choices] == ["1 x v,e + 1 x pd"]


def test_throughput_has_no_targets() -> None:
    found = make_plan(case(Slo()), 1, "e2etp-cost", Effort(trials=8))
    assert found.choices[0].value > 0
    assert found.choices[0].curve == []


def test_targets_that_nothing_meets() -> None:
    found = make_plan(case(Slo(ttft=0.001, tbt=0.2)), 1, "goodput", Effort(trials=6))
    assert found.choices == []
    (line,) = explain(found)
    assert found.nearest
    assert found.nearest.seen.scale
    assert found.nearest.seen.scale > 1
    longer = Slo(ttft=0.001 * found.nearest.seen.scale, tbt=0.2 * found.nearest.seen.scale)
    assert f"targets {found.nearest.seen.scale:.2f} times as long would do" in line
    assert make_plan(case(longer), 1, "goodput", Effort(trials=6)).choices


def test_an_interrupted_search_has_the_best_so_far() -> None:
    def interrupt(tried: Tried) -> None:
        if tried.best:
            os.kill(os.getpid(), signal.SIGINT)

    found = make_plan(case(), 1, "goodput", EFFORT, tell=interrupt)
    assert found.interrupted
    assert found.choices
    assert found.candidates < EFFORT.trials


def test_a_rate_that_was_too_high_stays_known_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is up after the first simulation of the refinement."""

    def hurried(case: Case, candidate: Candidate, wanted: Wanted) -> Score:
        found = score(case, candidate, wanted)
        return msgspec.structs.replace(found, too_high=None) if wanted.precision < 0.1 else found

    monkeypatch.setattr("unifiedserve.planning.search.score", hurried)
    found = make_plan(case(), 1, "goodput", Effort(trials=3, seed=3))
    assert found.choices
    assert all(choice.too_high for choice in found.choices)


@pytest.mark.parametrize(
    ("asked", "devices", "message"),
    [
        (case(), 0, "needs one device at least"),
        (case(), 2, "all of whose cores are one device"),
        (case(Slo()), 1, "goodput needs targets"),
        (Case(profile(memory_gib=0.5), requests(), Slo(ttft=2.0)), 1, "no placement fits"),
    ],
)
def test_what_cannot_be_planned(asked: Case, devices: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_plan(asked, devices, "goodput", EFFORT)


def test_a_profile_that_does_not_know_videos() -> None:
    plain: HardwareProfile = msgspec.structs.replace(profile(), model_sizes=ModelSizes())
    with pytest.raises(ConfigError, match="frame_tokens"):
        Case(plain, requests(), Slo(ttft=2.0))


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0.0, 10.0)), max_size=30))
def test_more_devices_never_reach_less_in_the_front(found: list[tuple[int, float]]) -> None:
    ranking = Ranking()
    for number, (devices, value) in enumerate(found):
        ranking.add(Rated(Candidate(method="", label="", placement=str(number), devices=devices), Score(value, 1)))
    front = [(each.candidate.devices, each.score.value) for each in ranking.front()]
    assert front == sorted(set(front))
    assert all(more > fewer for (_, fewer), (_, more) in itertools.pairwise(front))
    for devices, value in found:
        if value:
            assert max(reached for count, reached in front if count <= devices) >= value


def test_devices_have_to_be_worth_their_cost() -> None:
    ranking = Ranking(cost=1.0)
    for devices, value in ((1, 2.0), (2, 2.5)):
        ranking.add(Rated(Candidate(method="", label="", placement=str(devices), devices=devices), Score(value, 1)))
    assert [each.candidate.devices for each in ranking.best] == [1, 2]
