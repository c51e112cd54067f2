"""The simulator takes exactly as long as its costs and the sharing of its cores say."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.load import EngineLoad
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import NAMED, Stage, read_placement
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Sharing, Simulator, StageCosts
from unifiedserve.scheduling.simulation.machine import Demand, Machine, Task
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.targets import Targets

COSTS = StageCosts(
    decode_pass=0.04,
    sequence=0.002,
    context_token=1e-6,
    prefill_pass=0.03,
    prompt_token=0.0001,
    prompt_context=1e-7,
    encode_batch=0.01,
    visual_token=0.002,
    intake=0.004,
    medium=0.006,
    analysis=0.008,
    message=0.0005,
    reply=0.001,
)
BUDGET = Budget(prefill_tokens=512, encode_tokens=512, max_running=64, kv_page_tokens=16)
UNIT = 64  # visual tokens
TEXT = 10  # tokens before a video, and behind it


class Apart:
    """Hardware on which nobody has to share."""

    rests = False

    def threads(self, giving: bool) -> int:
        return 1

    def decoders(self, threads: int) -> int:
        return threads

    def rates(self, demands: tuple[Demand, ...]) -> list[float]:
        return [1.0] * len(demands)


def text(uid: int, tokens: int, generate: int, arrival: float = 0.0) -> Arrival:
    return Arrival(Ticket(uid, arrival), [tokens], [], generate)


def video(uid: int, units: int, decode: float, generate: int = 1, arrival: float = 0.0) -> Arrival:
    gaps = [TEXT, *[0] * (units - 1), TEXT]
    return Arrival(Ticket(uid, arrival), gaps, [UNIT] * units, generate, decode, gop=units, media=1)


def simulate(
    arrivals: list[Arrival],
    placement: str = "shared",
    budget: Budget = BUDGET,
    sharing: Sharing | None = None,
    cores: Sequence[int] = (),
    dual_streams: bool = False,
) -> dict[int, list[float]]:
    free, table = FreePages(10_000, 10_000, 10_000), read_placement(placement, cores)
    simulator = Simulator(table, budget, free, arrivals, COSTS, sharing or Cores(2), dual_streams=dual_streams)
    simulator.run()
    assert simulator.unfinished == []
    return simulator.tokens


def ends(sharing: Sharing, works: dict[str, tuple[float, Demand]]) -> dict[str, float]:
    """Let tasks of so many seconds run at once; return when each has ended."""
    machine, now, ended = Machine(sharing), 0.0, {}
    for name, (seconds, demand) in works.items():
        machine.start(Task(seconds, demand, lambda name=name: ended.update({name: now})))  # type: ignore[misc]
    while len(machine):
        left = machine.left
        machine.advance(left)
        now += left
        machine.end_next().ended()
    return ended


def test_a_task_alone_takes_its_time() -> None:
    assert ends(Cores(2), {"a": (3.0, Demand(2))}) == {"a": 3.0}


def test_two_equal_processes_share_a_core_evenly() -> None:
    works = {"a": (1.0, Demand(1)), "b": (3.0, Demand(1))}
    assert ends(Cores(1), works) == pytest.approx({"a": 2.0, "b": 4.0})
    assert ends(Cores(2), works) == pytest.approx({"a": 1.0, "b": 3.0})


def test_a_lower_priority_gets_a_fifth_less_a_level() -> None:
    first, second = Cores(4).rates((Demand(4, nice=2), Demand(4, nice=5)))
    assert first / second == pytest.approx(1.25**3)
    assert first + second == pytest.approx(1.0)


def test_what_the_first_cannot_use_is_the_others() -> None:
    decode, encode, vision = Cores(2).rates((Demand(1), Demand(2, nice=7), Demand(1, nice=10)))
    assert decode == 1.0
    assert 2 * encode + vision == pytest.approx(1.0)


def test_threads_that_wait_for_each_other_lose_time() -> None:
    """A core that another stage takes holds up the thread there; work on both cores holds up both alike."""
    cores = Cores(2, waste=0.4)
    assert cores.rates((Demand(1), Demand(2, nice=7)))[1] == pytest.approx(0.5 * 0.8)
    assert cores.rates((Demand(2), Demand(2))) == pytest.approx([0.5, 0.5])
    assert cores.rates((Demand(2),)) == [1.0]


demands = st.lists(st.builds(Demand, st.integers(1, 8), st.integers(0, 19), st.just(())), min_size=1, max_size=8)


@given(st.integers(1, 8), demands)
def test_cores_are_used_up_and_priorities_kept(count: int, demands: list[Demand]) -> None:
    rates = Cores(count).rates(tuple(demands))
    used = sum(rate * demand.threads for rate, demand in zip(rates, demands, strict=True))
    assert used == pytest.approx(min(count, sum(demand.threads for demand in demands)))
    by_priority = sorted(zip(demands, rates, strict=True), key=lambda pair: pair[0].nice)
    assert all(before[1] >= after[1] - 1e-12 for before, after in pairwise(by_priority))


@given(st.integers(1, 4), st.lists(st.tuples(st.floats(0.1, 10), st.integers(0, 19)), min_size=1, max_size=6))
def test_no_work_is_lost_or_made(count: int, work: list[tuple[float, int]]) -> None:
    """Whatever the priorities, tasks that use all cores end when all of their work is done."""
    ended = ends(Cores(count), {str(i): (seconds, Demand(count, nice)) for i, (seconds, nice) in enumerate(work)})
    assert max(ended.values()) == pytest.approx(sum(seconds for seconds, _ in work))


@pytest.mark.parametrize("placement", NAMED)
def test_a_lone_text_takes_its_analytic_time(placement: str) -> None:
    """Its prompt takes two chunks, of 512 and 88 tokens; the shorter one is a chunk as it ends the prompt."""
    tokens = simulate([text(0, 600, 4)], placement)[0]
    prefill = COSTS.prefill(512, 512 * 256) + COSTS.prefill(88, 88 * 556)
    first = COSTS.intake + COSTS.message + prefill + COSTS.reply
    table = read_placement(placement, ())
    handoff = COSTS.message if table.hosts(Stage.PREFILL) != table.hosts(Stage.DECODE) else 0.0
    steps = [COSTS.decode(1, 601 + step) for step in range(3)]
    assert tokens[0] == pytest.approx(first)
    assert [after - before for before, after in pairwise(tokens)] == pytest.approx([handoff + steps[0], *steps[1:]])


@pytest.mark.parametrize("dual_streams", [False, True])
def test_a_lone_image_takes_its_analytic_time(dual_streams: bool) -> None:
    """With dual streams the encoder has half of the cores, also when it is alone."""
    tokens = simulate([video(0, 1, decode=0.05)], dual_streams=dual_streams)[0]
    arrives = COSTS.intake + COSTS.medium + COSTS.message
    decoded = COSTS.analysis + 0.05 + COSTS.message
    prompt, encode = UNIT + 2 * TEXT, (2 if dual_streams else 1) * COSTS.encode(UNIT)
    assert tokens == pytest.approx([arrives + decoded + encode + COSTS.prefill(prompt, prompt**2 / 2) + COSTS.reply])


def test_with_dual_streams_a_batch_of_the_encoder_stops_nobody() -> None:
    """In one loop; a step of decode on half of the cores and a chunk of the prompt are shorter than a batch."""
    work = [text(0, 50, 400), video(1, 16, decode=0.01, arrival=1.0)]

    def longest_gap(dual_streams: bool) -> float:
        tokens = simulate(work, "monolithic", dual_streams=dual_streams)[0]
        return max(after - before for before, after in pairwise(tokens))

    assert longest_gap(False) > COSTS.encode(400)
    assert longest_gap(True) < longest_gap(False) / 3


def test_overlap_hides_all_but_the_last_unit() -> None:
    """Where encoding a unit takes less than decoding it, nothing but the last one's is seen."""
    units, decode = 20, 0.2
    budget = replace(BUDGET, encode_tokens=UNIT)
    with_overlap = simulate([video(0, units, decode)], budget=budget, sharing=Apart())[0][0]
    without = simulate([video(0, units, decode)], budget=replace(budget, overlap=False), sharing=Apart())[0][0]
    tokens = units * UNIT + 2 * TEXT
    around = COSTS.intake + COSTS.medium + 2 * COSTS.message + COSTS.analysis + COSTS.reply
    assert COSTS.encode(UNIT) < decode
    prefill = sum(COSTS.prefill(n, n * (start + n / 2)) for start, n in ((0, 512), (512, 512), (1024, tokens - 1024)))
    assert without == pytest.approx(around + units * (decode + COSTS.encode(UNIT)) + prefill)
    last = COSTS.prefill(tokens - 1024, (tokens - 1024) * (1024 + tokens) / 2)
    assert with_overlap == pytest.approx(around + units * decode + COSTS.encode(UNIT) + last)


def test_streams_keep_to_the_target_beside_a_video() -> None:
    """Decode rests while others work, as the workers do it: tokens come at the target, not as fast as they can."""
    target = 0.1
    work = [text(0, 50, 100), video(1, 20, decode=0.1, arrival=1.0)]
    tokens = simulate(work, budget=replace(BUDGET, slo_tbt=target))
    gaps = [after - before for before, after in pairwise(tokens[0]) if before > 1.5 and after < tokens[1][0]]
    assert len(gaps) > 10
    assert gaps == pytest.approx([target] * len(gaps), rel=0.02)


@pytest.mark.parametrize(("placement", "target"), [("shared", 0.12), ("monolithic", 0.25)])
def test_a_target_that_is_held_bounds_the_gaps(placement: str, target: float) -> None:
    """What is measured comes down to the target, if a step with a single unit takes no longer; and videos get on."""
    work = [text(0, 50, 1000), *(video(uid, 120, decode=0.1, arrival=1.0) for uid in (1, 2))]
    tokens = simulate(work, placement, budget=replace(BUDGET, slo_tbt=target, holds=True))
    last = max(tokens[uid][0] for uid in (1, 2))
    gaps = sorted(after - before for before, after in pairwise(tokens[0]) if before > 4.0 and after < last)
    assert len(gaps) > 100
    assert gaps[int(0.98 * len(gaps))] <= target


def test_the_same_trace_gives_the_same_times() -> None:
    choose = Random(7)
    work = [text(uid, choose.randint(1, 900), choose.randint(1, 40), choose.uniform(0, 20)) for uid in range(60)]
    work += [video(60 + i, choose.randint(1, 30), choose.uniform(0, 0.2), 5, choose.uniform(0, 20)) for i in range(6)]
    assert simulate(work) == simulate(list(work))


@pytest.mark.parametrize("cores", [(), (0, 1)], ids=["together", "apart"])
def test_steps_that_are_one_event_give_the_same_times(monkeypatch: pytest.MonkeyPatch, cores: tuple[int, ...]) -> None:
    choose = Random(3)
    work = [text(uid, choose.randint(1, 300), choose.randint(1, 200), choose.uniform(0, 30)) for uid in range(12)]
    work.append(video(12, 30, 0.05, generate=100, arrival=10.0))
    budget = replace(BUDGET, slo_tbt=0.1)
    for placement in NAMED:
        together = simulate(work, placement, budget, cores=cores)
        with monkeypatch.context() as patch:
            patch.setattr(System, "quiet_until", property(lambda system: system.clock.now))
            each = simulate(work, placement, budget, cores=cores)
        assert together.keys() == each.keys()
        assert all(together[uid] == pytest.approx(each[uid]) for uid in each)


def test_costs_are_kept_as_json(tmp_path: Path) -> None:
    COSTS.save(tmp_path / "costs.json")
    assert StageCosts.load(tmp_path / "costs.json") == COSTS


@pytest.mark.parametrize("contents", [None, "{", '{"intake": "much"}', "[]"])
def test_other_files_are_no_costs(tmp_path: Path, contents: str | None) -> None:
    path = tmp_path / "costs.json"
    if contents is not None:
        path.write_text(contents)
    with pytest.raises(ConfigError, match=r"costs\.json: no costs of stages"):
        StageCosts.load(path)


def test_four_encoders_bring_the_first_token_of_one_video_early() -> None:
    """EPD Fig. 5 on eight cores, one for each encoder; 128 frames are 64 units."""

    def first_token(encoders: int, *, irp: bool) -> float:
        parts = "v@0+" + "".join(f"e@{core}+" for core in range(1, 1 + encoders)) + "p@5-6+d@7"
        placement = msgspec.structs.replace(read_placement(parts, range(8)), irp=irp)
        free = FreePages(10_000, 10_000, 10_000)
        arrivals = [video(1, 64, decode=0.0001)]
        simulator = Simulator(placement, BUDGET, free, arrivals, COSTS, Cores(8))
        simulator.run()
        return simulator.tokens[1][0]

    alone = first_token(1, irp=True)
    assert alone / first_token(4, irp=True) > 2.5
    assert first_token(4, irp=False) == pytest.approx(alone, rel=0.01)


def test_a_machine_behind_a_router_is_as_one_whose_requests_are_known_before() -> None:
    arrivals = [text(uid, 100 + 10 * uid, 8, 0.3 * uid) for uid in range(6)]
    simulator = Simulator(read_placement("shared", ()), BUDGET, FreePages(10_000, 10_000, 10_000), [], COSTS, Cores(2))
    for arrival in arrivals:
        simulator.run(arrival.ticket.arrival)
        simulator.submit(arrival)
    simulator.run()
    for uid, times in simulate(arrivals).items():
        assert simulator.tokens[uid] == pytest.approx(times)


def test_a_machine_tells_what_is_left_to_do() -> None:
    targets = Targets(EngineConfig())
    targets.learn(Costs(prompt_token=0.001, visual_token=0.01))
    free = FreePages(10_000, 10_000, 10_000)
    simulator = Simulator(read_placement("shared", ()), BUDGET, free, [], COSTS, Cores(2), targets=targets)
    assert simulator.load == EngineLoad(kv_free=10_000, kv_total=10_000, costs=targets.costs)
    simulator.submit(video(1, 4, decode=1.0, generate=3))
    simulator.submit(text(2, 50, 40))
    simulator.run(0.5)
    load = simulator.load
    assert (load.in_flight, load.waiting, load.streams) == (2, 1, 1)  # the video's first frames are not decoded yet
    assert load.visual_tokens == 4 * UNIT
    assert load.prompt_tokens == 4 * UNIT + 2 * TEXT
    assert load.wait == pytest.approx(0.01 * 4 * UNIT + 0.001 * (4 * UNIT + 2 * TEXT), rel=0.5)
    assert load.kv_free < load.kv_total
    simulator.run()
    assert (simulator.load.in_flight, simulator.load.wait, simulator.load.kv_free) == (0, 0.0, 10_000)
