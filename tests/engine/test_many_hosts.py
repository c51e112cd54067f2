"""Several workers for a stage: whoever serves a request, its answer is that of `transformers`, and none is lost."""

import concurrent.futures
from collections.abc import Callable

import pytest
from daemon import Daemon
from ended_workers import NAMES, answer, check_after_a_death
from media import Clip
from questions import TOKENS, Question, question
from reference import Reference

PLACEMENT = "2v+2e+2p+2d"

pytestmark = pytest.mark.daemon("two of its workers host each stage", placement=PLACEMENT)

Clips = Callable[[int], Clip]


@pytest.fixture
def asked(clips: Clips) -> list[Question]:
    return [question(name, clips) for name in NAMES]


@pytest.fixture
def expected(hf: Reference, asked: list[Question]) -> list[list[int]]:
    return [hf.generate(each.case, TOKENS) for each in asked]


def test_all_of_them_serve_and_answer_alike(daemon: Daemon, asked: list[Question], expected: list[list[int]]) -> None:
    """Again, too, when what they have computed is cached: any of them can take it up."""
    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda each: answer(daemon, each), asked * 4))
        assert answers == expected * 4
    daemon.wait_idle()
    events = daemon.engine.observation.trace()["traceEvents"]
    served = {event["args"]["instance"] for event in events if event["ph"] == "X" and "instance" in event["args"]}
    assert served == set(daemon.engine.observation.worker_pids())


@pytest.mark.parametrize(
    "instance",
    [
        pytest.param("vision-2", marks=pytest.mark.long),
        "encode-1",
        pytest.param("prefill-2", marks=pytest.mark.long),
        "decode-1",
    ],
)
def test_a_killed_one_loses_no_request(
    daemon: Daemon, asked: list[Question], expected: list[list[int]], instance: str
) -> None:
    check_after_a_death(daemon, asked, expected, instance)
