"""What has killed workers is refused for a while, by its contents."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from unifiedserve.engine.requests.quarantine import Quarantine
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.suspects import Suspects
from unifiedserve.errors import ErrorKind, RequestError


def request(tokens: list[int], *media: bytes) -> ActiveRequest:
    planned = SimpleNamespace(prompt=SimpleNamespace(token_ids=tokens))
    contents = SimpleNamespace(media=SimpleNamespace(keys=list(media)))
    return ActiveRequest(cast(Any, planned), 0.0, [], contents=cast(Any, contents))


def refused(quarantine: Quarantine, active: ActiveRequest) -> bool:
    try:
        quarantine.check(active)
    except RequestError as error:
        return error.kind is ErrorKind.HARMFUL
    return False


def test_a_request_is_known_by_its_tokens_and_its_media() -> None:
    quarantine = Quarantine()
    quarantine.add(request([1, 2], b"a"))
    others = [request([1, 2], b"b"), request([1], b"a"), request([1, 2])]
    assert refused(quarantine, request([1, 2], b"a"))
    assert not any(refused(quarantine, other) for other in others)


def test_a_medium_is_refused_that_was_alone_in_who_decoded_it() -> None:
    quarantine = Quarantine()
    alone, both = request([1], b"a"), request([1], b"b", b"c")
    alone.suspect_media = both.suspect_media = True
    quarantine.add(alone)
    quarantine.add(both)
    assert refused(quarantine, request([7], b"a"))
    assert not refused(quarantine, request([7], b"b"))


def test_it_ends_after_a_while() -> None:
    quarantine = Quarantine(seconds=0.0)
    quarantine.add(request([1]))
    assert not refused(quarantine, request([1]))


def test_who_was_the_only_work_of_two_workers_is_the_cause_and_counts_once() -> None:
    suspects, culprit = Suspects(), request([1])
    assert not suspects.blame({culprit})
    assert not suspects.convicted(culprit)
    assert suspects.blame({culprit}, media=True)
    assert suspects.convicted(culprit)
    assert culprit.suspect_media


@pytest.mark.parametrize("beside", [0, 1])
def test_a_worker_without_a_single_suspect_counts_each_time(beside: int) -> None:
    suspects, requests = Suspects(), {request([each]) for each in range(2 * beside)}
    assert not any(suspects.blame(requests) for _ in range(3))
