"""A daemon with several memories: the answers of `transformers`, each page where it belongs, and none left."""

import concurrent.futures
import re
from collections.abc import Callable

import httpx
import pytest
from daemon import Daemon
from ended_workers import NAMES, answer, check_after_a_death
from media import Clip
from questions import TOKENS, Question, question
from reference import Reference

pytestmark = pytest.mark.daemon(
    "its workers have several memories, between which nothing travels", placement="2v@mem2+ep@mem0+epd@mem1+d@mem0"
)


@pytest.fixture
def asked(clips: Callable[[int], Clip]) -> list[Question]:
    return [question(name, clips) for name in NAMES]


@pytest.fixture
def expected(hf: Reference, asked: list[Question]) -> list[list[int]]:
    return [hf.generate(each.case, TOKENS) for each in asked]


def test_answers_are_the_same_from_all_of_them(
    daemon: Daemon, asked: list[Question], expected: list[list[int]]
) -> None:
    """Again, too, when what they have computed is cached, in the memory where it was."""
    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            assert list(pool.map(lambda each: answer(daemon, each), asked * 4)) == expected * 4
    daemon.wait_idle()
    cached = daemon.engine.observation.cached()
    assert set(cached) == {("mem0", "kv"), ("mem0", "visual"), ("mem1", "kv"), ("mem1", "visual")}
    assert all(cached.values())
    assert daemon.engine.observation.peaks().keys() == daemon.engine.observation.buffers().keys()
    assert all(daemon.engine.observation.peaks().values())
    events = daemon.engine.observation.trace()["traceEvents"]
    served = {event["args"]["instance"] for event in events if event["ph"] == "X" and "instance" in event["args"]}
    assert served == set(daemon.engine.observation.worker_pids())


def test_what_is_called_back_leaves_nothing_in_any_memory(daemon: Daemon, asked: list[Question]) -> None:
    streams = [
        daemon.client.chat.completions.create(
            model=daemon.engine.model_name,
            messages=each.messages,
            max_tokens=400,
            stream=True,
            extra_body={"ignore_eos": True, **each.options},
        )
        for each in asked * 2
    ]
    for number, stream in enumerate(streams):
        if number % 2:
            next(iter(stream))
        stream.close()
    daemon.wait_idle()


@pytest.mark.parametrize("instance", [pytest.param("vision-2", marks=pytest.mark.long), "encode-prefill"])
def test_a_killed_one_loses_no_request(
    daemon: Daemon, asked: list[Question], expected: list[list[int]], instance: str
) -> None:
    check_after_a_death(daemon, asked, expected, instance)


def test_they_are_seen(daemon: Daemon) -> None:
    metrics = httpx.get(f"{daemon.url}/metrics").text
    total = re.findall(r'^unifiedserve:buffer_total_pages\{buffer="(\w+)",memory="(\w+)"\} \d+', metrics, re.M)
    assert sorted(total) == [(pool, memory) for pool in ("kv", "patch", "visual") for memory in ("mem0", "mem1")]
    placed = {each["name"]: each["memory"] for each in httpx.get(f"{daemon.url}/v1/placement").json()["instances"]}
    assert placed == {
        "vision-1": "mem2",
        "vision-2": "mem2",
        "encode-prefill": "mem0",
        "language": "mem1",
        "decode": "mem0",
    }


def test_a_worker_hosts_only_what_its_memory_has_pages_for(daemon: Daemon) -> None:
    response = httpx.post(f"{daemon.url}/v1/placement", json={"instance": "vision-2", "stages": "p"})
    assert response.status_code == 409
    assert response.json()["error"]["message"] == (
        "vision-2 cannot host prefill: its memory mem2 was laid out at the start for vision"
    )
