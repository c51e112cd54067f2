"""The table forgets an attempt with its last answer, and a request when it is released."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.placement import Load, Route, Stage

LOAD = Load(Route("v", "e", "p", "d"), {Stage.ENCODE: 30, Stage.PREFILL: 50})


@pytest.fixture
def released() -> list[int]:
    """How many requests were in the table after each release."""
    return []


@pytest.fixture
def table(released: list[int]) -> RequestTable:
    table: RequestTable = RequestTable(1, lambda: released.append(len(table)))
    return table


def request(table: RequestTable) -> ActiveRequest:
    answers = [cast(Any, SimpleNamespace(token_ids=[], last_token=None, forget_early=lambda: None)) for _ in range(2)]
    active = ActiveRequest(planned=cast(Any, SimpleNamespace()), arrival=0.0, answers=answers)
    table.add(active)
    return active


def test_an_attempt_is_over_when_its_last_answer_has_left(table: RequestTable) -> None:
    active, uid = request(table), table.new_uid()
    table.begin(uid, active, [0, 1], LOAD)
    table.leave(uid, 0)
    assert table.find(uid) is active
    table.leave(uid, 1)
    table.leave(uid, 1)
    assert table.find(uid) is None
    assert active.attempts == {}


def test_an_attempt_that_is_drained_has_no_answers_but_a_request(table: RequestTable) -> None:
    active, uid = request(table), table.new_uid()
    table.begin(uid, active, [1, 0], LOAD)
    assert table.empty(uid) == [0, 1]
    assert table.find(uid) is active
    assert table.end_attempt(uid) is active
    assert table.end_attempt(uid) is None


def test_a_request_that_ends_is_found_but_not_served(table: RequestTable) -> None:
    active, uid = request(table), table.new_uid()
    table.begin(uid, active, [0], LOAD)
    active.ending = True
    assert table.find(uid) is active
    assert table.serving(uid) is None


def test_lost_attempts_are_forgotten_and_their_requests_stay_but_those_that_were_ending(table: RequestTable) -> None:
    active, other, ending = (request(table) for _ in range(3))
    for uid, each in enumerate((active, other, ending), 1):
        table.begin(uid, each, [0, 1], LOAD)
    table.leave(1, 0)
    ending.ending = True
    assert table.lose([1, 3]) == [(1, active, [1]), (3, ending, [0, 1])]
    assert table.find(1) is None
    assert table.find(2) is other
    assert set(table) == {active, other}


def test_a_release_takes_the_request_and_its_attempts(table: RequestTable, released: list[int]) -> None:
    active, uid = request(table), table.new_uid()
    table.begin(uid, active, [0], LOAD)
    table.release(active)
    assert released == [0]
    assert table.find(uid) is None


def test_what_is_ahead_is_the_work_of_those_that_wait(table: RequestTable) -> None:
    waiting, begun, ending = request(table), request(table), request(table)
    for active, work in ((waiting, 1.5), (begun, 2.0), (ending, 4.0)):
        active.work = work
    begun.answers.append(cast(Any, SimpleNamespace(last_token=1.0)))
    ending.ending = True
    assert table.backlog == 1.5
    table.release(waiting)
    assert table.backlog == 0.0


def test_stages_before_decode_have_no_part_in_answers_that_are_decoded(table: RequestTable) -> None:
    active, uid = request(table), table.new_uid()
    table.begin(uid, active, [0, 1], LOAD)
    for index in (0, 1, 0):
        table.came(uid, index)
    assert all(map(table.serves, "vepd"))
    table.came(uid, 1)
    assert [name for name in "vepd" if table.serves(name)] == ["d"]
    for name in "ve":
        table.without(name)
    assert table.route(uid) == Route("", (), "p", "d")
    table.without("p")
    assert table.route(uid) == Route("", (), "d", "d")


def test_whoever_an_abort_goes_by_has_a_part_in_it(table: RequestTable) -> None:
    ending, stale = request(table), request(table)
    for active in (ending, stale):
        table.begin(uid := table.new_uid(), active, [0], LOAD)
        table.hand_over(uid, 0, "h")
        table.came(uid, 0)
        table.came(uid, 0)
        assert table.route(uid) == LOAD.route.decoded_by("h")
    assert [name for name in "vepdh" if table.serves(name)] == ["h"]
    ending.ending = True
    assert [name for name in "vepdh" if table.serves(name)] == [*"veph"]
    table.hand_over(1, 0, "i")
    assert table.route(1) == LOAD.route.decoded_by("h"), "the abort is on its way"
    ending.ending = False
    table.empty(2)
    assert [name for name in "vepdh" if table.serves(name)] == [*"veph"]


def test_answers_have_another_host_when_the_last_one_was_handed_over_or_has_ended(table: RequestTable) -> None:
    active, uid = request(table), table.new_uid()
    table.begin(uid, active, [0, 1, 2], LOAD)
    for index in (0, 1):
        table.hand_over(uid, index, "h")
        assert table.route(uid) == LOAD.route
    table.leave(uid, 2)
    assert table.route(uid) == LOAD.route.decoded_by("h")


def test_a_failed_step_is_remembered_until_its_attempt_is_over(table: RequestTable) -> None:
    active, uid = request(table), table.new_uid()
    table.begin(uid, active, [0], LOAD)
    assert not table.had_failed_step(uid)
    assert table.note_failed_step(uid)
    table.empty(uid)
    assert table.had_failed_step(uid)
    table.end_attempt(uid)
    assert not table.had_failed_step(uid)
    assert not table.note_failed_step(uid)
