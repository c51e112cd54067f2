"""The papers' schedulers find the largest steps that end in time, and plan in the papers' order."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.config import EngineConfig
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Stage, read_placement
from unifiedserve.scheduling import (
    Budget,
    Chunk,
    Costs,
    DecodeState,
    EncodeWork,
    Plan,
    PrefillState,
    State,
    Unit,
    budget_of,
    policy_for,
)
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Simulator, StageCosts
from unifiedserve.scheduling.step_costs import Line, StepCosts, largest_within

EP, EPD = (Stage.ENCODE, Stage.PREFILL), (Stage.ENCODE, Stage.PREFILL, Stage.DECODE)
BUDGET = Budget(512, 512, 8, 16, scheduling="stage-level", fills=True, enough=1 << 30)

sizes = st.integers(0, 3000)
times = st.floats(0.0, 10.0)


def text(uid: int, tokens: int) -> PrefillState:
    return PrefillState(Ticket(uid, uid), tokens, -(-tokens // 16))


def video(uid: int, units: int, tokens: int = 32) -> PrefillState:
    made = [Unit(tokens, i * tokens, ready=True) for i in range(units)]
    return PrefillState(Ticket(uid, uid), units * tokens + 10, 99, made, decoded=True)


def line(fixed: float, token: float) -> Line:
    """A line through steps of two sizes."""
    return Line().after(100, fixed + 100 * token).after(400, fixed + 400 * token)


def state(prefills: list[PrefillState], steps: StepCosts, decode: float = 0.0) -> State:
    """Return a state with one sequence that decodes, if a step of it takes any time."""
    decodes = [DecodeState(Ticket(9, 0.0), 0, 20, 2)] if decode else []
    return State(prefills, decodes, 10_000, 10_000, costs=Costs(decode=decode), steps=steps)


def tokens(plan: Plan, requests: list[PrefillState]) -> tuple[int, int]:
    """Return the prompt tokens and the visual tokens of a plan."""
    units = {request.ticket.uid: request.units for request in requests}
    visual = sum(units[uid][number].tokens for uid, numbers in plan.encode for number in numbers)
    return sum(chunk.stop - chunk.start for chunk in plan.prefill), visual


@given(st.lists(times, max_size=200), times, st.integers(0, 200))
def test_the_largest_size_is_what_trying_all_of_them_finds(added: list[float], cap: float, least: int) -> None:
    seconds = [0.0]
    for each in added:
        seconds.append(seconds[-1] + each)
    most = len(added)
    found = largest_within(seconds.__getitem__, cap, most, least)
    assert found == max(size for size in range(most + 1) if size <= min(least, most) or seconds[size] <= cap)


@given(st.integers(1, 1 << 30), times, st.floats(1e-9, 1.0))
def test_a_search_asks_for_few_sizes(most: int, cap: float, token: float) -> None:
    asked: list[int] = []

    def seconds_of(size: int) -> float:
        asked.append(size)
        return size * token

    largest_within(seconds_of, cap, most)
    assert len(asked) <= most.bit_length() + 1


@given(times, st.floats(1e-5, 0.1), st.lists(st.integers(1, 4096), min_size=2, max_size=40))
def test_a_line_learns_what_is_fixed_from_steps_of_several_sizes(fixed: float, token: float, made: list[int]) -> None:
    found = Line()
    for size in made:
        found = found.after(size, fixed + size * token)
    learnt, each = found.parts
    assert learnt >= -1e-9
    assert each >= 0
    if 2 * made[-2] < made[-1]:
        assert learnt == pytest.approx(fixed, abs=1e-6 * (1 + fixed + 4096 * token))
        assert each == pytest.approx(token, rel=1e-3, abs=1e-6 * (1 + fixed))


@given(
    st.floats(0.001, 0.5),
    st.floats(1e-5, 1e-2),
    st.floats(0.001, 0.5),
    st.floats(1e-5, 1e-2),
    st.floats(0.001, 2.0),
    st.floats(1.0, 3.0),
    st.sampled_from([0.0, 0.05]),
    st.booleans(),
)
def test_a_step_keeps_to_its_cap_unless_a_single_unit_does_not(
    a_pass: float,
    token: float,
    batch: float,
    visual_token: float,
    cap: float,
    more: float,
    decode: float,
    is_video: bool,
) -> None:
    """In every type of instance; and a longer cap never makes a step smaller."""
    requests = [video(1, 100) if is_video else text(1, 5000)]
    steps = StepCosts(line(a_pass, token), line(batch, visual_token))
    seen, taken = state(requests, steps, decode), []
    for allowed in (cap, cap * more):
        budget = replace(BUDGET, slo_tbt=allowed, step_cap=allowed)
        prompt, visual = tokens(policy_for(EPD if decode else EP, "stage-level")(seen, budget), requests)
        assert prompt or visual
        seconds = a_pass + (prompt + bool(decode)) * token if prompt else decode + batch + visual * visual_token
        assert seconds <= allowed + 1e-6 or prompt == 16 or visual == 32
        taken.append(prompt + visual)
    assert taken[0] <= taken[1]


@pytest.mark.parametrize("scheduling", ["stage-level", "prefill-encode"])
def test_without_a_cap_budgets_are_those_of_the_options(scheduling: str) -> None:
    """Such as those of UnifiedServe's evaluation: 2048 prompt tokens, and 10240 visual ones of Qwen2.5-VL."""
    config = EngineConfig.of(scheduling=scheduling, prefill_chunk_tokens=2048, encode_budget_tokens=10240)
    budget = budget_of(config, 10_000, 0.0)
    unlike = state([], StepCosts(line(9.0, 1.0), line(9.0, 1.0)))
    for requests in ([text(1, 5000)], [video(1, 400)]):
        unlike.prefills = requests
        plan = policy_for(EP, budget.scheduling)(unlike, budget)
        assert tokens(plan, requests) in ((2048, 0), (0, 10240))


def test_before_anything_was_measured_steps_are_small() -> None:
    for requests, expected in (([text(1, 5000)], (32, 0)), ([video(1, 100)], (0, 32))):
        budget = replace(BUDGET, slo_tbt=0.1)
        plan = policy_for(EPD, "stage-level")(state(requests, StepCosts(), 0.01), budget)
        assert tokens(plan, requests) == expected


def test_alg_1_takes_sequences_then_prompts_and_encodes_only_without_prompts() -> None:
    """The oldest request, too, waits with its media for the prompts of others."""
    plan = policy_for(EPD, "stage-level")(state([video(1, 2), text(2, 50)], StepCosts(), 0.01), BUDGET)
    assert plan == Plan([], [Chunk(2, 0, 50)], [(9, 0)])
    plan = policy_for(EP, "stage-level")(state([video(1, 2)], StepCosts()), BUDGET)
    assert plan == Plan([EncodeWork(1, [0, 1])])


def test_alg_3_encodes_beside_prompts_each_within_a_budget_of_its_own() -> None:
    steps = StepCosts(line(0.01, 0.001), line(0.02, 0.0005))
    budget = replace(BUDGET, step_cap=0.1005)
    plan = policy_for(EP, "prefill-encode")(state([text(1, 5000), video(2, 100)], steps), budget)
    assert plan == Plan([EncodeWork(2, [0, 1, 2, 3, 4])], [Chunk(1, 0, 90)])


@pytest.mark.parametrize(
    ("options", "cap"),
    [
        ({}, 0.0),
        ({"slo_ttft": 600.0}, 0.3),
        ({"slo_ttft": 600.0, "scheduling": "stage-level"}, 0.3),
        ({"slo_tbt": 80.0, "scheduling": "prefill-encode"}, 0.08),
    ],
)
def test_the_cap_of_steps_that_do_not_decode_follows_from_the_targets(options: dict[str, object], cap: float) -> None:
    assert budget_of(EngineConfig.of(**options), 100, 0.01).step_cap == cap


def test_a_target_for_the_first_token_bounds_steps_but_not_below_what_is_efficient() -> None:
    steps, requests = StepCosts(line(0.1, 0.001), line(0.1, 0.001)), [text(1, 5000)]
    for cap, expected in ((0.0, 512), (0.4, 300), (0.01, 128)):
        budget = replace(BUDGET, scheduling="adaptive", step_cap=cap)
        assert tokens(policy_for(EP)(state(requests, steps), budget), requests) == (expected, 0)


def test_simulated_steps_come_up_to_the_target_and_stay_there() -> None:
    """Beside a stream, steps with prompts grow until they take the target, from what the first ones have taken."""
    costs = StageCosts(decode_pass=0.02, prefill_pass=0.03, prompt_token=0.0005)
    target = 0.1
    work = [Arrival(Ticket(0, 0.0), [50], [], 400), Arrival(Ticket(1, 1.0), [10_000], [], 1)]
    placement, free = read_placement("monolithic", range(2)), FreePages(10_000, 100, 100)
    simulator = Simulator(placement, replace(BUDGET, slo_tbt=target), free, work, costs, Cores(2))
    simulator.run()
    stream, (first,) = simulator.tokens[0], simulator.tokens[1]
    gaps = [after - before for before, after in pairwise(stream) if before > 1.0 and after < first]
    assert max(gaps) <= target + 1e-6
    assert min(gaps[8:]) > 0.95 * target
