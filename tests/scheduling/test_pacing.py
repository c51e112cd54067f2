"""Streams keep to the target between tokens while others work, and never wait for nothing."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling import (
    Budget,
    Chunk,
    Costs,
    DecodeState,
    EncodeWork,
    Pace,
    Plan,
    PrefillState,
    State,
    Unit,
    continuous_batching,
    heavy_within_share,
    joins_soon,
    learn_encode,
    learn_step,
    leaves_cores,
    stage_level,
    within_share,
)

TARGET = 0.1
BUDGET = Budget(prefill_tokens=512, encode_tokens=512, max_running=8, kv_page_tokens=16, slo_tbt=TARGET)

seconds = st.floats(0.0, 1.0)


def paced(now: float, pace: Pace, prefills: list[PrefillState] | None = None, costs: Costs | None = None) -> State:
    return State(prefills or [], [DecodeState(Ticket(9, 0.0), 0, 20, 2)], 1000, 1000, now, pace, costs or Costs())


def text(tokens: int) -> PrefillState:
    return PrefillState(Ticket(1, 1.0), tokens, -(-tokens // 16))


def video(units: int, tokens: int = 32) -> PrefillState:
    made = [Unit(tokens, i * tokens, ready=True) for i in range(units)]
    return PrefillState(Ticket(1, 1.0), units * tokens + 10, 99, made)


@given(seconds, seconds)
def test_alone_decode_runs_at_full_speed(now: float, step: float) -> None:
    for policy in (continuous_batching, stage_level):
        plan = policy(paced(now + step, Pace(now, now + step)), BUDGET)
        assert plan.decode == [(9, 0)]


@given(st.floats(0.0, 2 * TARGET), seconds, seconds)
def test_a_wait_ends_one_target_after_the_last_start(step: float, start: float, later: float) -> None:
    pace = Pace(start, start + step, others_work=True)
    now = start + step + later
    plan = continuous_batching(paced(now, pace), BUDGET)
    if plan.decode:
        return
    assert plan.wait_until > now, "it must not spin"
    assert plan.wait_until <= start + max(TARGET, (1 + BUDGET.rest) * step) + 1e-9
    assert continuous_batching(paced(plan.wait_until, pace), BUDGET).decode == [(9, 0)]


@given(st.floats(0.001, 0.3), st.integers(1, 200))
def test_a_paced_stream_has_the_speed_of_its_target(step: float, steps: int) -> None:
    now, pace = 0.0, Pace(others_work=True)
    starts = []
    while len(starts) < steps:
        plan = continuous_batching(paced(now, pace), BUDGET)
        if plan.decode:
            starts.append(now)
            pace = Pace(now, now + step, others_work=True)
            now += step
        else:
            now = plan.wait_until
    gaps = [after - before for before, after in pairwise(starts)]
    longest = max(TARGET, (1 + BUDGET.rest) * step)
    assert all(abs(gap - longest) < 1e-6 for gap in gaps), "as fast as the target allows, with a rest for the others"


@given(st.floats(0.001, 0.3), st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=200))
def test_a_stream_never_stalls_however_many_others_are_about_to_join(
    step: float, elsewhere: list[tuple[int, bool]]
) -> None:
    budget = replace(BUDGET, stretch=2.0, stretch_joining=3.0)
    now, pace = 0.0, Pace()
    starts = []
    for waiting, joining in elsewhere:
        pace = pace._replace(others_work=True, waiting=waiting, joining=joining)
        plan = continuous_batching(paced(now, pace), budget)
        if not plan.decode:
            now = plan.wait_until
            assert continuous_batching(paced(now, pace), budget).decode
        starts.append((now, 3 if joining else 2 if waiting > 1 else 1))
        pace = Pace(now, now + step)
        now += step
    for (before, _), (after, stretched) in pairwise(starts):
        beat = max(TARGET, (1 + BUDGET.rest) * step)
        assert abs(after - before - stretched * beat) < 1e-6


def test_streams_keep_their_target_beside_as_many_who_wait() -> None:
    budget = replace(BUDGET, stretch=2.0)
    for waiting, until in ((4, TARGET), (5, 2 * TARGET)):
        state = paced(0.05, Pace(0.0, 0.05, others_work=True, waiting=waiting))
        state.decodes = [DecodeState(Ticket(uid, 0.0), 0, 20, 2) for uid in range(4)]
        assert continuous_batching(state, budget).wait_until == until


def test_streams_wait_for_those_who_join_by_this_step_or_the_next() -> None:
    short, whole, long, begun = video(3), text(500), video(30), text(700)
    begun.admit()
    begun.prefill(600)
    states = dict(enumerate([short, whole, long, begun]))
    for plan, expected in (
        (Plan(), False),
        (Plan(prefill=[Chunk(1, 0, 500)]), True),
        (Plan(prefill=[Chunk(1, 0, 400)]), False),
        (Plan(prefill=[Chunk(3, 600, 700)]), False),
        (Plan(encode=[EncodeWork(0, [0, 1, 2])]), True),
        (Plan(encode=[EncodeWork(2, [0, 1])]), False),
        (Plan(encode=[EncodeWork(2, [0])], prefill=[Chunk(1, 0, 500)]), True),
    ):
        assert joins_soon(plan, states.__getitem__, BUDGET) == expected


def test_in_one_worker_a_step_takes_more_of_the_prompts_if_more_wait_than_stream() -> None:
    budget, costs = replace(BUDGET, stretch=2.0), Costs(0.05, 1e-3)
    few = stage_level(paced(0.0, Pace(), [text(5000)], costs), budget)
    many = stage_level(paced(0.0, Pace(), [text(5000), text(5000)], costs), budget)
    assert few.prefill[0].stop == 50
    assert many.prefill[0].stop == 150


def test_the_first_step_of_a_stream_does_not_wait() -> None:
    assert continuous_batching(paced(5.0, Pace(others_work=True)), BUDGET).decode == [(9, 0)]
    long_ago = Pace(1.0, 1.05, others_work=True)
    assert continuous_batching(paced(5.0, long_ago), BUDGET).decode == [(9, 0)]


def test_without_sequences_there_is_nothing_to_wait_for() -> None:
    state = paced(0.05, Pace(0.0, 0.05, others_work=True))
    state.decodes = []
    plan = continuous_batching(state, BUDGET)
    assert not plan.has_work
    assert plan.wait_until == float("inf")


def test_without_a_target_nobody_waits() -> None:
    budget = Budget(512, 512, 8, 16)
    assert continuous_batching(paced(0.05, Pace(0.0, 0.05, others_work=True)), budget).decode == [(9, 0)]


def test_in_one_worker_decode_makes_room_for_others_only_when_it_has_nothing_else_to_do() -> None:
    pace = Pace(0.0, 0.05, others_work=True)
    assert stage_level(paced(0.05, pace), BUDGET).wait_until == TARGET
    plan = stage_level(paced(0.05, pace, [text(5000)]), BUDGET)
    assert plan.decode
    assert plan.prefill


@given(
    decode=st.floats(0.001, 0.09),
    prompt_token=st.floats(1e-5, 1e-2),
    visual_token=st.floats(1e-5, 1e-2),
    request=st.sampled_from([text(5000), video(100)]),
)
def test_a_mixed_step_ends_in_time(
    decode: float, prompt_token: float, visual_token: float, request: PrefillState
) -> None:
    """Budgets find the step that fits from measurements alone, and always let something through."""
    costs = learn_step(Costs(), 1, 0, decode)
    durations = []
    for _ in range(3):
        plan = stage_level(paced(0.0, Pace(), [request], costs), BUDGET)
        prompt = sum(chunk.stop - chunk.start for chunk in plan.prefill)
        visual = sum(request.units[unit].tokens for _, units in plan.encode for unit in units)
        assert plan.decode
        assert prompt or visual
        if visual:
            costs = learn_encode(costs, visual, visual * visual_token)
        costs = learn_step(costs, 1, prompt, decode + prompt * prompt_token)
        durations.append(decode + prompt * prompt_token + visual * visual_token)
    smallest = decode + 16 * prompt_token if not request.units else decode + 32 * visual_token
    longest = max(TARGET, (1 + BUDGET.rest) * decode)
    assert durations[-1] <= max(longest, smallest) + 1e-9
    room = (longest - decode) / (prompt_token if not request.units else visual_token)
    if room >= 64:
        used = prompt if not request.units else visual
        assert used >= min(512, room) - 33, "what fits is used"


def test_without_streams_budgets_are_whole() -> None:
    state = paced(0.0, Pace(), [text(5000)], Costs(0.05, 1e-2, 1e-2))
    state.decodes = []
    (chunk,) = stage_level(state, BUDGET).prefill
    assert chunk.stop == 512


@given(st.floats(1 / 32, 1.0), st.integers(0, 4096), st.integers(1, 4096))
def test_a_share_of_a_budget_is_never_nothing_and_never_more(share: float, prompt: int, visual: int) -> None:
    budget = replace(BUDGET, prefill_tokens=prompt, encode_tokens=visual)
    heavy = heavy_within_share(budget, share)
    assert min(256, visual) <= heavy.encode_tokens <= visual
    if share < 1:
        assert min(128, prompt or 8192) <= heavy.prefill_tokens <= (prompt or 8192)
    streams = within_share(budget, share)
    assert 0 < streams.slo_tbt <= TARGET
    assert heavy == budget if share == 1 else streams != budget


def test_streams_that_miss_their_target_take_all_cores() -> None:
    assert leaves_cores(1.0)
    assert not leaves_cores(0.5)
