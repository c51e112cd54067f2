"""What each policy promises, on small examples."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.config import Order
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import FIRST_MEMORY, Stage
from unifiedserve.scheduling import (
    Budget,
    Chunk,
    DecodeState,
    EncodeWork,
    PrefillState,
    Queue,
    State,
    Unit,
    VisionState,
    continuous_batching,
    encode_prefill,
    goes_between,
    policy_for,
    schedule_decode,
    schedule_encode,
    schedule_in_between,
    schedule_prefill,
    schedule_vision,
    stage_level,
)
from unifiedserve.scheduling.vision import BufferPages

ORDERS: list[Order] = ["fcfs", "slack", "shortest"]
BUDGET = Budget(prefill_tokens=100, encode_tokens=64, max_running=8, kv_page_tokens=16)


def state(
    prefills: list[PrefillState], decodes: list[DecodeState] | None = None, kv: int = 1000, order: Order = "fcfs"
) -> State:
    queue: Queue[PrefillState] = Queue(order)
    for request in prefills:
        queue.add(request)
    return State(queue.in_turn(0.0), decodes or [], kv, 1000)


def text(uid: int, tokens: int, **changes: object) -> PrefillState:
    prefill = PrefillState(Ticket(uid, uid), tokens, -(-tokens // 16))
    for name, value in changes.items():
        setattr(prefill, name, value)
    return prefill


def video(uid: int, units: int, tokens: int = 32, ready: bool = True) -> PrefillState:
    made = [Unit(tokens, 10 + i * tokens, ready=ready) for i in range(units)]
    return PrefillState(Ticket(uid, uid), 10 + units * tokens + 10, 99, made)


def test_a_running_prefill_goes_before_a_new_request() -> None:
    plan = encode_prefill(state([text(1, 80), text(2, 80, admitted=True, prefilled=20)]), BUDGET)
    assert plan.prefill == [Chunk(2, 20, 80), Chunk(1, 0, 40)]


def test_text_overtakes_a_video_that_is_still_being_decoded() -> None:
    plan = encode_prefill(state([video(1, 4, ready=False), text(2, 50)]), BUDGET)
    assert plan.encode == []
    assert plan.prefill == [Chunk(2, 0, 50)]


def test_encoding_goes_on_while_prefill_waits_for_pages() -> None:
    plan = encode_prefill(state([video(1, 4)], kv=0), BUDGET)
    assert plan.encode == [EncodeWork(1, [0, 1])]
    assert plan.prefill == []


def test_a_video_is_not_encoded_while_an_older_request_is_prefilled() -> None:
    plan = encode_prefill(state([text(1, 50), video(2, 4)]), BUDGET)
    assert (plan.encode, plan.prefill) == ([], [Chunk(1, 0, 50)])


def test_a_video_is_encoded_while_a_younger_request_is_prefilled() -> None:
    plan = encode_prefill(state([video(1, 4), text(2, 50)]), BUDGET)
    assert (plan.encode, plan.prefill) == ([EncodeWork(1, [0, 1])], [Chunk(2, 0, 50)])


def test_a_video_that_is_encoded_goes_on_before_an_older_one_that_became_ready_later() -> None:
    begun = video(2, 4)
    begun.decoding = True
    begun.encode_unit(0)
    assert encode_prefill(state([video(1, 4), begun]), BUDGET).encode == [EncodeWork(2, [1, 2])]


def test_beside_a_prefill_that_has_begun_only_what_has_begun_is_encoded() -> None:
    running = text(2, 500, admitted=True, prefilled=100)
    assert encode_prefill(state([video(1, 4), running]), BUDGET).encode == []
    running = partly_encoded(0, 1, 2)
    running.admitted = True
    assert encode_prefill(state([video(0, 4), running]), BUDGET).encode == [EncodeWork(1, [3])]


def partly_encoded(*encoded: int) -> PrefillState:
    """A video of four units of 32 tokens behind 10 tokens of text."""
    request = video(1, 4)
    request.decoding = True
    for unit in encoded:
        request.encode_unit(unit)
    return request


def test_prefill_stops_at_the_first_unit_that_is_not_encoded() -> None:
    budget = replace(BUDGET, prefill_tokens=42)
    assert encode_prefill(state([partly_encoded(0, 2)]), budget).prefill == [Chunk(1, 0, 42)]


def test_a_small_piece_of_a_prompt_waits_for_more() -> None:
    assert encode_prefill(state([partly_encoded(0)]), BUDGET).prefill == []
    assert encode_prefill(state([partly_encoded(0, 1)]), BUDGET).prefill == []
    assert encode_prefill(state([partly_encoded(0, 1, 2)]), BUDGET).prefill == [Chunk(1, 0, 100)]


def test_the_end_of_a_prompt_does_not_wait_and_takes_others_along() -> None:
    end = partly_encoded(0, 1, 2, 3)
    end.prefilled, end.admitted = 100, True
    assert encode_prefill(state([end]), BUDGET).prefill == [Chunk(1, 100, 148)]
    other = partly_encoded(0)
    other.ticket = Ticket(2, other.ticket.arrival)
    assert encode_prefill(state([end, other]), BUDGET).prefill == [Chunk(1, 100, 148), Chunk(2, 0, 42)]


def test_short_prompts_end_one_after_another_in_efficient_steps() -> None:
    budget = replace(BUDGET, prefill_tokens=512)
    plan = encode_prefill(state([text(uid, 128) for uid in range(1, 9)]), budget)
    assert plan.prefill == [Chunk(1, 0, 128), Chunk(2, 0, 128)]


def test_the_end_of_a_prompt_does_not_wait_for_a_long_piece_of_another() -> None:
    budget = replace(BUDGET, prefill_tokens=512)
    plan = encode_prefill(state([text(1, 600, admitted=True, prefilled=500), text(2, 5000)]), budget)
    assert plan.prefill == [Chunk(1, 500, 600), Chunk(2, 0, 156)]
    assert encode_prefill(state([text(1, 400), text(2, 5000)]), budget).prefill == [Chunk(1, 0, 400)]


@given(st.lists(st.integers(1, 700), min_size=1, max_size=12), st.sampled_from([64, 300, 512, 0]))
def test_first_tokens_come_in_order_as_early_as_efficient_steps_allow(sizes: list[int], budget: int) -> None:
    """256 prompt tokens are efficient. Steps hold no fewer but the last one, and no prompt ends after more than it and
    all before it have, rounded up by one such step."""
    waiting = [text(uid, tokens) for uid, tokens in enumerate(sizes)]
    done, ended = 0, []
    while waiting:
        chunks = encode_prefill(state(waiting, kv=100_000), replace(BUDGET, prefill_tokens=budget)).prefill
        taken = sum(chunk.stop - chunk.start for chunk in chunks)
        done += taken
        assert taken >= min(256, budget or 256) or done == sum(sizes)
        for chunk in chunks:
            request = next(request for request in waiting if request.ticket.uid == chunk.uid)
            request.prefilled, request.admitted = chunk.stop, True
            if chunk.stop == request.num_tokens:
                waiting.remove(request)
                ended.append(request.ticket.uid)
                assert done < sum(sizes[: request.ticket.uid + 1]) + 256
    assert ended == sorted(ended)


def test_beside_running_sequences_every_token_counts() -> None:
    plan = stage_level(state([partly_encoded(0)], [DecodeState(Ticket(9, 0.0), 0, 20, 2)]), BUDGET)
    assert plan.prefill == [Chunk(1, 0, 42)]


def test_without_overlap_a_stage_waits_for_the_whole_request() -> None:
    budget = replace(BUDGET, overlap=False, prefill_tokens=20)
    request = video(1, 4, ready=False)
    for unit in range(3):
        request.decode_unit(unit)
        request.encode_unit(unit)
    assert not encode_prefill(state([request]), budget).has_work
    request.decode_unit(3)
    request.decoded = True
    plan = encode_prefill(state([request]), budget)
    assert (plan.encode, plan.prefill) == ([EncodeWork(1, [3])], [])
    request.encode_unit(3)
    assert encode_prefill(state([request]), budget).prefill == [Chunk(1, 0, 20)]


def test_a_unit_larger_than_the_budget_is_encoded_alone() -> None:
    plan = encode_prefill(state([video(1, 2, tokens=500)]), BUDGET)
    assert plan.encode == [EncodeWork(1, [0])]


def test_prefill_leaves_pages_for_growth_unless_the_cache_is_empty() -> None:
    budget = Budget(0, 64, 8, 16, kv_reserve=5)
    assert encode_prefill(state([text(1, 160)], kv=14), budget).prefill == []
    assert encode_prefill(state([text(1, 160)], kv=15), budget).prefill == [Chunk(1, 0, 160)]
    assert encode_prefill(state([text(1, 16_000)], kv=1000), budget).prefill == [Chunk(1, 0, 16_000)]


def test_no_chunk_ends_within_a_unit_that_must_be_whole() -> None:
    """One that would ends before the unit, and one that begins with it takes all of it whatever the budget."""
    budget = replace(BUDGET, prefill_tokens=20)
    request, later = partly_encoded(0, 1, 2, 3), text(2, 50)
    request.whole_units = True
    chunks = []
    while request.prefilled < request.num_tokens:
        chunk, *others = encode_prefill(state([request, later]), budget).prefill
        assert not others or chunk.stop == request.num_tokens
        chunks.append((chunk.start, chunk.stop))
        request.prefilled, request.admitted = chunk.stop, True
    assert chunks == [(0, 10), (10, 42), (42, 74), (74, 106), (106, 138), (138, 148)]


def test_a_prefix_that_ends_within_a_whole_unit_is_continued_to_its_end() -> None:
    request = partly_encoded(0, 1, 2, 3)
    request.whole_units, request.prefilled = True, 20
    assert encode_prefill(state([request]), replace(BUDGET, prefill_tokens=5)).prefill == [Chunk(1, 20, 42)]


def test_stage_level_encodes_only_when_no_prefill_runs() -> None:
    decodes = [DecodeState(Ticket(9, 0.0), 0, 20, 2)]
    plan = stage_level(state([text(1, 50), video(2, 2)], decodes), BUDGET)
    assert (plan.decode, plan.prefill, plan.encode) == ([(9, 0)], [Chunk(1, 0, 50)], [])
    plan = stage_level(state([video(2, 2)], decodes), BUDGET)
    assert (plan.decode, plan.encode) == ([(9, 0)], [EncodeWork(2, [0, 1])])


def test_stage_level_encodes_the_oldest_request_although_later_ones_prefill() -> None:
    plan = stage_level(state([video(1, 2), text(2, 50)], [DecodeState(Ticket(9, 0.0), 0, 20, 2)]), BUDGET)
    assert (plan.prefill, plan.encode) == ([Chunk(2, 0, 50)], [EncodeWork(1, [0, 1])])


def test_the_youngest_sequence_gives_its_pages_back() -> None:
    sequences = [DecodeState(Ticket(uid, float(uid)), 0, 33, 2) for uid in (1, 2, 3)]
    run, preempted = schedule_decode(sequences, kv_free=1, page_tokens=16, max_running=8)
    assert preempted == [(3, 0)]
    assert run == [(1, 0), (2, 0)]


def test_a_page_that_a_sequence_holds_in_advance_is_no_page_for_another() -> None:
    sequences = [DecodeState(Ticket(1, 1.0), 0, 30, 3), DecodeState(Ticket(2, 2.0), 0, 33, 2)]
    assert schedule_decode(sequences, kv_free=0, page_tokens=16, max_running=8) == ([(1, 0)], [(2, 0)])


def free(patch: int, visual: int) -> dict[str, BufferPages]:
    return {FIRST_MEMORY: BufferPages(patch, visual)}


def test_vision_admits_in_order_and_nobody_overtakes() -> None:
    waiting = [
        VisionState(Ticket(1, 1.0), 5, 5, admitted=True),
        VisionState(Ticket(2, 2.0), 7, 2),
        VisionState(Ticket(3, 3.0), 1, 3),
    ]
    assert schedule_vision(waiting, free(6, 9)) == schedule_vision(waiting, free(9, 1)) == []
    assert schedule_vision(waiting, free(8, 9)) == [2, 3]
    assert schedule_vision(waiting, free(9, 4)) == [2], "visual pages lack"


def test_a_full_memory_holds_nobody_back_who_wants_pages_of_another() -> None:
    waiting = [
        VisionState(Ticket(1, 1.0), 7, 2),
        VisionState(Ticket(2, 2.0), 1, 1),
        VisionState(Ticket(3, 3.0), 4, 2, "mem1"),
        VisionState(Ticket(4, 4.0), 4, 2, "mem1"),
        VisionState(Ticket(5, 5.0), 1, 1, "mem1"),
    ]
    assert schedule_vision(waiting, free(6, 9) | {"mem1": BufferPages(5, 9)}) == [3]
    assert schedule_vision(waiting, free(8, 9) | {"mem1": BufferPages(1, 9)}) == [1, 2]
    assert schedule_vision(waiting, free(8, 9) | {"mem1": BufferPages(9, 9)}) == [1, 2, 3, 4, 5]
    assert schedule_vision(waiting, free(6, 9) | {"mem1": BufferPages(3, 9)}) == []


@pytest.mark.parametrize(
    ("stages", "policy"),
    [
        ((Stage.DECODE,), continuous_batching),
        ((Stage.ENCODE, Stage.PREFILL), encode_prefill),
        ((Stage.ENCODE, Stage.PREFILL, Stage.DECODE), stage_level),
    ],
)
def test_every_instance_has_the_policy_of_its_stages(stages: tuple[Stage, ...], policy: object) -> None:
    assert policy_for(stages) is policy


@pytest.mark.parametrize(
    ("stages", "kinds"),
    [
        ((Stage.ENCODE,), {"encode"}),
        ((Stage.PREFILL,), {"prefill"}),
        ((Stage.ENCODE, Stage.DECODE), {"encode", "decode"}),
        ((Stage.PREFILL, Stage.DECODE), {"prefill", "decode"}),
    ],
)
def test_nothing_is_planned_for_stages_that_others_host(stages: tuple[Stage, ...], kinds: set[str]) -> None:
    begun = video(1, 4)
    begun.decoding = True
    begun.encode_unit(0)
    begun.encode_unit(1)
    decodes = [DecodeState(Ticket(9, 9), 0, 20, 2)] if Stage.DECODE in stages else []
    plan = policy_for(stages)(state([begun, text(2, 80)], decodes), BUDGET)
    assert {kind for kind in ("encode", "prefill", "decode") if getattr(plan, kind)} == kinds


def test_the_lowest_priority_number_goes_first_everywhere() -> None:
    late = PrefillState(Ticket(2, 2.0, -1), 10, 1)
    early = PrefillState(Ticket(1, 1.0), 10, 1)
    for order in ORDERS:
        assert [chunk.uid for chunk in schedule_prefill(state([early, late], order=order), BUDGET)] == [2, 1]
        media: Queue[VisionState] = Queue(order)
        for ticket in (early.ticket, late.ticket):
            media.add(VisionState(ticket, 7, 7))
        assert schedule_vision(media.in_turn(0.0), free(7, 7)) == [2]
    decodes = [DecodeState(Ticket(2, 2.0, -1), 0, 5, 1), DecodeState(Ticket(1, 1.0), 0, 5, 1)]
    assert schedule_decode(sorted(decodes, key=lambda s: s.turn), 1, 4, 8) == ([(2, 0)], [(1, 0)])


SHARING = replace(BUDGET, order="slack", short_tokens=64)


def first_video(units: int = 8) -> PrefillState:
    """A video of 32 tokens a unit, half of it encoded, that is first in turn."""
    request = video(1, units)
    request.ticket = Ticket(1, 0.0, due=3.0, work=1.0)
    request.decoding = True
    for unit in range(units // 2):
        request.encode_unit(unit)
    return request


def short_image(uid: int) -> PrefillState:
    return PrefillState(Ticket(uid, 5.0, due=50.0, work=1.0), 30, 2, [Unit(20, 5, ready=True)])


def test_no_text_waits_behind_a_video_and_the_video_goes_on() -> None:
    late = PrefillState(Ticket(2, 5.0, due=50.0, work=1.0), 30, 2)
    plan = encode_prefill(state([first_video(), late], order="slack"), SHARING)
    assert plan.prefill == [Chunk(2, 0, 30), Chunk(1, 0, 70)]
    plan = encode_prefill(state([first_video(), late], order="slack"), replace(SHARING, short_tokens=0))
    assert plan.prefill == [Chunk(1, 0, 100)]


def test_an_image_is_encoded_with_one_unit_of_the_video_before_it() -> None:
    work = schedule_encode(state([first_video(), short_image(2), short_image(3)], order="slack"), SHARING)
    assert work == [EncodeWork(2, [0]), EncodeWork(1, [4])]


def test_beside_a_short_request_that_is_first_nothing_long_is_encoded() -> None:
    image = PrefillState(Ticket(2, 0.0, due=1.0, work=0.5), 30, 2, [Unit(20, 5, ready=True)])
    later = video(3, 4)
    later.ticket = Ticket(3, 0.0, due=90.0, work=1.0)
    requests = state([later, image], order="slack")
    assert schedule_encode(requests, SHARING) == [EncodeWork(2, [0])]
    assert schedule_encode(requests, replace(SHARING, short_tokens=0)) == [EncodeWork(2, [0]), EncodeWork(3, [0])]


def test_where_small_batches_are_a_waste_they_are_filled() -> None:
    """By requests later in turn than what is prefilled, and by long ones beside short ones."""
    filling = replace(SHARING, fills=True, encode_tokens=128)
    plan = encode_prefill(state([text(1, 50), video(2, 4)]), replace(BUDGET, fills=True))
    assert (plan.encode, plan.prefill) == ([EncodeWork(2, [0, 1])], [Chunk(1, 0, 50)])
    requests = state([first_video(), short_image(2), short_image(3)], order="slack")
    assert schedule_encode(requests, filling) == [EncodeWork(2, [0]), EncodeWork(3, [0]), EncodeWork(1, [4, 5])]
    image = PrefillState(Ticket(2, 0.0, due=1.0, work=0.5), 30, 2, [Unit(20, 5, ready=True)])
    later = video(3, 4)
    later.ticket = Ticket(3, 0.0, due=90.0, work=1.0)
    assert schedule_encode(state([later, image], order="slack"), filling) == [
        EncodeWork(2, [0]),
        EncodeWork(3, [0, 1, 2]),
    ]


def test_a_share_is_kept_for_nobody_of_a_lower_class() -> None:
    late = PrefillState(Ticket(2, 5.0, priority=1, due=50.0, work=1.0), 30, 2)
    assert schedule_prefill(state([first_video(), late], order="slack"), SHARING) == [Chunk(1, 0, 100)]


def test_in_between_layers_only_short_prompts_go_that_are_before_what_is_encoded() -> None:
    before = PrefillState(Ticket(2, 0.0, due=0.5, work=0.2), 30, 2)
    behind = PrefillState(Ticket(3, 5.0, due=50.0, work=1.0), 30, 2)
    waiting = state([first_video(), before, behind, short_image(4)], order="slack")
    assert schedule_in_between(waiting, SHARING, {1}, sharing=False) == [Chunk(2, 0, 30)]
    assert schedule_in_between(waiting, SHARING, {1}, sharing=True) == [Chunk(2, 0, 30), Chunk(3, 0, 30)]
    behind.ticket = Ticket(3, 5.0, priority=1, due=50.0, work=1.0)
    waiting = state([first_video(), before, behind], order="slack")
    assert schedule_in_between(waiting, SHARING, {1}, sharing=True) == [Chunk(2, 0, 30)], "a lower class waits"


def test_in_between_nothing_goes_whose_visual_tokens_may_be_on_their_way() -> None:
    seen = short_image(2)
    seen.encode_unit(0)
    waiting = state([first_video(), seen], order="slack")
    assert schedule_in_between(waiting, SHARING, {1}, sharing=True) == []


def test_nothing_goes_in_between_where_streams_would_wait_for_it() -> None:
    both = {Stage.ENCODE, Stage.PREFILL}
    assert goes_between(both, SHARING)
    assert goes_between({*both, Stage.VISION}, SHARING)
    assert not goes_between({*both, Stage.DECODE}, SHARING)
    assert not goes_between({Stage.ENCODE}, SHARING)
    assert not goes_between(both, BUDGET)


def test_in_between_nobody_overtakes_who_waits_for_kv_pages() -> None:
    behind = PrefillState(Ticket(3, 5.0, due=50.0, work=1.0), 30, 2)
    waiting = state([first_video(), behind, short_image(4)], order="slack")
    assert schedule_in_between(waiting, SHARING, {4}, sharing=True) == []
    waiting.prefills[0].admit()
    assert schedule_in_between(waiting, SHARING, {4}, sharing=True) == [Chunk(3, 0, 30)]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 200), st.integers(0, 20)), min_size=1, max_size=10),
    st.sampled_from(ORDERS),
    st.integers(0, 300),
    st.booleans(),
)
def test_steps_stay_within_their_budgets(
    requests: list[tuple[bool, int, int]], order: Order, short_tokens: int, fills: bool
) -> None:
    waiting = []
    for uid, (has_media, size, due) in enumerate(requests):
        request = video(uid, 1 + size // 32) if has_media else text(uid, size)
        request.ticket = Ticket(uid, uid, due=uid + due, work=1.0)
        for unit in range(len(request.units) // 2):
            request.decoding = True
            request.encode_unit(unit)
        waiting.append(request)
    budget = replace(BUDGET, order=order, short_tokens=short_tokens, fills=fills)
    seen = state(waiting, order=order)
    chunks = schedule_prefill(seen, budget)
    assert sum(chunk.stop - chunk.start for chunk in chunks) <= BUDGET.prefill_tokens
    assert len({chunk.uid for chunk in chunks}) == len(chunks)
    work = schedule_encode(seen, budget)
    assert sum(32 * len(units) for _, units in work) <= BUDGET.encode_tokens + 32
    assert all(not waiting[uid].units[number].encoded for uid, units in work for number in units)
    assert bool(work) == any(request.to_encode for request in waiting)
