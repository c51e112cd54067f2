"""What ends with a worker, and what goes on without it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from unifiedserve.engine.requests.losses import called_back, ended_with, handed_over, left_behind, still_to_come
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.placement import Load, Placement, Route, read_placement

NEAR = read_placement("2v+2e+2p+2d", ())
FAR = read_placement("2e+2p@mem1+2d@mem2", ())


def route(placement: Placement, number: int) -> Route:
    vision = f"vision-{number}" if placement is NEAR else "vision"
    return Route(vision, ("encode-1", "encode-2"), f"prefill-{number}", f"decode-{number}")


def table_of(placement: Placement, came: int) -> RequestTable:
    """Three attempts by the first worker of each stage, and one by the others: so many tokens have come of each.

    The second is an answer that had tokens before, of the third nothing is left but to drain it.
    """
    table = RequestTable(4, lambda: None)
    for uid, (number, before) in enumerate([(1, 0), (1, 7), (1, 0), (2, 0)], 1):
        answer = SimpleNamespace(token_ids=[1] * before, last_token=None)
        active = ActiveRequest(cast(Any, None), 0.0, [cast(Any, answer)])
        table.add(active)
        table.begin(uid, active, [0], Load(route(placement, number), {}))
        for _ in range(came):
            table.came(uid, 0)
        active.ending = uid == 3
    return table


@pytest.mark.parametrize(
    ("came", "ended"),
    [
        (0, {"vision-1": [1, 2, 3], "encode-2": [1, 2, 3, 4], "prefill-1": [1, 2, 3], "decode-1": [3], "decode-2": []}),
        (1, {"vision-1": [3], "encode-2": [3], "prefill-1": [3], "decode-1": [1, 2, 3], "decode-2": [4]}),
    ],
)
def test_a_first_token_shows_that_decode_has_it(came: int, ended: dict[str, list[int]]) -> None:
    table = table_of(NEAR, came)
    assert {name: list(ended_with(name, table, NEAR)) for name in ended} == ended
    assert list(handed_over("prefill-1", "decode-1", table)) == ([1, 2, 3] if came else [])
    assert list(handed_over("prefill-2", "decode-1", table)) == []
    assert list(left_behind("prefill-1", table, NEAR)) == []
    assert list(still_to_come("decode-1", table)) == ([] if came else [1, 2, 3])


def test_what_another_one_decoded_before_was_given_by_that() -> None:
    table = table_of(NEAR, 1)
    table.hand_over(4, 0, "decode-1")
    assert list(handed_over("decode-2", "decode-1", table)) == [4]
    assert list(handed_over("prefill-2", "decode-1", table)) == []
    assert list(ended_with("decode-2", table, NEAR)) == []


@pytest.mark.parametrize(("came", "left"), [(1, []), (2, [1, 2, 3])])
def test_where_pages_travel_the_second_does(came: int, left: list[int]) -> None:
    table = table_of(FAR, came)
    assert [uid for uid, _ in left_behind("prefill-1", table, FAR)] == left
    assert [uid for uid, _ in left_behind("encode-1", table, FAR)] == ([*left, 4] if left else [])
    assert list(ended_with("prefill-1", table, FAR)) == sorted({1, 2, 3} - set(left) | {3})


@pytest.mark.parametrize("came", [0, 2])
def test_what_is_drained_is_called_back_again_from_whoever_has_a_part_in_it(came: int) -> None:
    """The call may have been on its way to the dead worker."""
    table = table_of(NEAR, came)
    table.empty(4)
    assert {name: list(called_back(name, table)) for name in ("vision-1", "encode-2", "decode-1", "decode-2")} == {
        "vision-1": [3],
        "encode-2": [3, 4],
        "decode-1": [3],
        "decode-2": [4],
    }
