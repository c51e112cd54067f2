"""A daemon whose stages have memories of their own: its answers are those of `transformers`, and none is lost."""

import concurrent.futures
import random
from collections.abc import Callable
from typing import Any

import pytest
from completions import metric
from daemon import Daemon
from ended_workers import NAMES, answer, check_after_a_death
from media import Clip
from questions import TOKENS, Question, question
from reference import Reference

PLACEMENT = "2e+2p@mem1+2d@mem2"

pytestmark = pytest.mark.daemon("pages travel between its workers", placement=PLACEMENT)

Clips = Callable[[int], Clip]


@pytest.fixture
def asked(clips: Clips) -> list[Question]:
    return [question(name, clips) for name in NAMES]


@pytest.fixture
def expected(hf: Reference, asked: list[Question]) -> list[list[int]]:
    return [hf.generate(each.case, TOKENS) for each in asked]


def test_answers_are_exact_and_their_pages_travelled(
    daemon: Daemon, asked: list[Question], expected: list[list[int]]
) -> None:
    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda each: answer(daemon, each), asked * 4))
        assert answers == expected * 4
    daemon.wait_idle()
    assert metric(daemon, 'pulled_bytes_total{stage="prefill"}') > 0
    assert metric(daemon, 'pulled_bytes_total{stage="decode"}') > 0
    events = daemon.engine.observation.trace()["traceEvents"]
    pulls = [event for event in events if event["name"] == "pull"]
    assert {event["cat"] for event in pulls} == {"prefill", "decode"}
    assert all(event["args"]["bytes"] > 0 for event in pulls)


@pytest.mark.daemon("visual tokens are cached where they have travelled to", placement=PLACEMENT, no_prefix_cache=True)
def test_visual_tokens_are_found_where_they_have_come_to(
    daemon: Daemon, asked: list[Question], expected: list[list[int]]
) -> None:
    for _ in range(3):
        assert [answer(daemon, each) for each in asked] == expected
    daemon.wait_idle()
    assert metric(daemon, "mm_cache_hits_total") > 0


@pytest.mark.daemon("pages travel over sockets", placement=PLACEMENT, carrier="tcp")
def test_answers_are_exact_over_sockets(daemon: Daemon, asked: list[Question], expected: list[list[int]]) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda each: answer(daemon, each), asked * 4)) == expected * 4
    daemon.wait_idle()


@pytest.mark.parametrize("instance", ["encode-1", "decode-1"])
def test_a_killed_one_loses_no_request(
    daemon: Daemon, asked: list[Question], expected: list[list[int]], instance: str
) -> None:
    check_after_a_death(daemon, asked, expected, instance)


def test_clients_that_leave_at_any_time_leave_nothing(
    daemon: Daemon, asked: list[Question], expected: list[list[int]]
) -> None:
    choose = random.Random(7)

    def leave(number: int) -> None:
        stream: Any = daemon.client.chat.completions.create(
            model=daemon.engine.model_name,
            messages=asked[number % len(asked)].messages,
            stream=True,
            max_tokens=200,
            extra_body={"ignore_eos": True, **asked[number % len(asked)].options},
        )
        for _, _ in zip(range(choose.randrange(8)), stream, strict=False):
            pass
        stream.close()

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        stays = [pool.submit(answer, daemon, each) for each in asked]
        list(pool.map(leave, range(60)))
        assert [each.result() for each in stays] == expected
    daemon.wait_idle()
