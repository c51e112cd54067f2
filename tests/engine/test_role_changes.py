"""Workers change what they host while others serve: no answer changes, none is lost, and no page stays."""

import concurrent.futures
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from daemon import Daemon
from media import Clip
from questions import TOKENS, Question, question
from reference import Reference

NAMES = ["text", "1 image", "8 frames", "image and video"]
STAGES = {"v": "vision", "e": "encode", "p": "prefill", "d": "decode"}

STREAM = 6000  # tokens: more than come while two workers change, however long a busy machine takes for that

pytestmark = pytest.mark.daemon("its workers change what they host", placement="2v+2e+2p+2d")


@pytest.fixture
def asked(clips: Callable[[int], Clip]) -> list[Question]:
    return [question(name, clips) for name in NAMES]


@pytest.fixture
def expected(hf: Reference, asked: list[Question]) -> list[list[int]]:
    return [hf.generate(each.case, TOKENS) for each in asked]


@pytest.fixture
def at_first(daemon: Daemon) -> Iterator[Daemon]:
    """The daemon, whose workers host at the end again what they did at first."""
    yield daemon
    daemon.wait_healthy()
    for name, stages in hosted(daemon).items():
        wanted = name.partition("-")[0]
        if stages != [wanted]:
            change(daemon, name, wanted[0])
    daemon.wait_idle()


def ask_for(daemon: Daemon, instance: str, stages: str) -> httpx.Response:
    return httpx.post(f"{daemon.url}/v1/placement", json={"instance": instance, "stages": stages})


def workers(daemon: Daemon) -> dict[str, Any]:
    return {each["name"]: each for each in httpx.get(f"{daemon.url}/v1/placement").json()["instances"]}


def hosted(daemon: Daemon) -> dict[str, list[str]]:
    return {name: worker["stages"] for name, worker in workers(daemon).items()}


def wait_for(daemon: Daemon, instance: str, *states: str) -> None:
    seen = daemon.engine.observation
    daemon.wait_for(lambda: next(each.state for each in seen.instances() if each.name == instance) in states)


def change(daemon: Daemon, instance: str, stages: str) -> None:
    """Returns when the worker hosts other stages."""
    response = ask_for(daemon, instance, stages)
    assert response.status_code == 202, response.text
    wait_for(daemon, instance, "serving")
    assert hosted(daemon)[instance] == [STAGES[letter] for letter in stages]


def answer(daemon: Daemon, asked: Question, tokens: int = TOKENS) -> list[int]:
    body: dict[str, Any] = {"return_token_ids": True, **asked.options}
    completion: Any = daemon.client.chat.completions.create(
        model=daemon.engine.model_name, messages=asked.messages, temperature=0, max_tokens=tokens, extra_body=body
    )
    return list(completion.choices[0].token_ids)


def begin_stream(daemon: Daemon, asked: Question) -> Any:
    """Have an answer streamed that goes on for as long as it may."""
    return daemon.client.chat.completions.create(
        model=daemon.engine.model_name,
        messages=asked.messages,
        temperature=0,
        max_tokens=STREAM,
        stream=True,
        extra_body={"ignore_eos": True, "return_token_ids": True, **asked.options},
    )


def read_tokens(stream: Any, count: int) -> list[int]:
    """Read the next tokens of a stream, which come one by one."""
    tokens: list[int] = []
    while len(tokens) < count:
        choices = next(stream).choices
        tokens += choices[0].token_ids if choices and choices[0].token_ids else []
    return tokens


def served(daemon: Daemon, stage: str) -> set[str]:
    """The workers that have worked for a stage."""
    events = daemon.engine.observation.trace()["traceEvents"]
    return {event["args"]["instance"] for event in events if event["ph"] == "X" and event["cat"] == stage}


def test_streams_go_on_while_a_worker_changes_and_back(
    at_first: Daemon, asked: list[Question], expected: list[list[int]]
) -> None:
    daemon = at_first
    pids = daemon.engine.observation.worker_pids()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(answer, daemon, each) for each in asked * 4]
        change(daemon, "encode-2", "p")
        answers += [pool.submit(answer, daemon, each) for each in asked * 4]
        change(daemon, "encode-2", "e")
        answers += [pool.submit(answer, daemon, each) for each in asked * 2]
        assert [each.result() for each in answers] == expected * 10
    daemon.wait_idle()
    now = daemon.engine.observation.worker_pids()
    assert {name for name, pid in pids.items() if now[name] != pid} == {"encode-2"}


@pytest.mark.parametrize(
    ("instance", "stages"),
    [
        pytest.param("encode-2", "p", marks=pytest.mark.long),  # as in other tests
        ("prefill-1", "ed"),
        pytest.param("decode-2", "v", marks=pytest.mark.long),
        ("vision-1", "epd"),
    ],
)
def test_it_serves_its_new_stages(
    at_first: Daemon, asked: list[Question], expected: list[list[int]], instance: str, stages: str
) -> None:
    daemon = at_first
    change(daemon, instance, stages)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda each: answer(daemon, each), asked * 4)) == expected * 4
    assert all(instance in served(daemon, STAGES[letter]) for letter in stages)


def test_a_change_waits_for_no_stream(at_first: Daemon, asked: list[Question], expected: list[list[int]]) -> None:
    """Those that are decoded there go on with another worker; what is called back meanwhile leaves nothing."""
    daemon = at_first
    streams, called_back = ([begin_stream(daemon, each) for each in asked] for _ in range(2))
    tokens = [read_tokens(stream, 1) for stream in [*streams, *called_back]]
    assert ask_for(daemon, "decode-2", "p").status_code == 202
    assert ask_for(daemon, "encode-1", "p").status_code == 202
    for stream in called_back:
        stream.close()
    wait_for(daemon, "decode-2", "serving")
    wait_for(daemon, "encode-1", "serving")
    daemon.wait_for(lambda: daemon.engine.observation.in_flight <= len(streams))
    assert daemon.engine.observation.in_flight == len(streams), "the streams ended before"
    assert [first + read_tokens(stream, TOKENS - 1) for first, stream in zip(tokens, streams, strict=False)] == expected
    for stream in streams:
        stream.close()
    daemon.wait_idle()


@pytest.mark.parametrize(
    ("killed", "state"),
    [
        ("encode-2", "draining"),
        pytest.param("encode-2", "starting", marks=pytest.mark.long),
        ("encode-2", "serving"),
        pytest.param("prefill-1", "draining", marks=pytest.mark.long),
        ("prefill-1", "starting"),
        pytest.param("prefill-1", "serving", marks=pytest.mark.long),
    ],
)
def test_a_death_at_any_moment_has_all_start_with_what_was_wanted(
    at_first: Daemon, asked: list[Question], expected: list[list[int]], killed: str, state: str
) -> None:
    daemon = at_first
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(answer, daemon, each) for each in asked * 2]
        assert ask_for(daemon, "encode-2", "p").status_code == 202
        wait_for(daemon, "encode-2", state, "serving")
        pids = daemon.engine.observation.worker_pids
        daemon.wait_for(lambda: killed in pids())  # else it is between its two processes
        pid = pids()[killed]
        with contextlib.suppress(ProcessLookupError):  # it has just ended as it was asked to
            os.kill(pid, signal.SIGKILL)
        assert [each.result() for each in answers] == expected * 2
    daemon.wait_for(lambda: pids().get(killed) not in (None, pid))
    daemon.wait_healthy()
    wait_for(daemon, "encode-2", "serving")
    assert hosted(daemon)["encode-2"] == ["prefill"]
    assert answer(daemon, asked[0]) == expected[0]


@pytest.mark.parametrize(
    ("instance", "stages", "status", "told"),
    [
        ("encode-9", "p", 404, "there is no worker 'encode-9'; the workers are vision-1, vision-2, encode-1"),
        ("encode-2", "px", 400, "'x' in 'px' is no stage; there are v (vision), e (encode)"),
        ("encode-2", "", 400, "hosts no stage"),
    ],
)
def test_what_is_wrong_is_told(daemon: Daemon, instance: str, stages: str, status: int, told: str) -> None:
    before = workers(daemon)
    response = ask_for(daemon, instance, stages)
    assert (response.status_code, told in response.json()["error"]["message"]) == (status, True), response.text
    assert workers(daemon) == before


def test_the_last_host_of_a_stage_stays(at_first: Daemon) -> None:
    daemon = at_first
    change(daemon, "encode-2", "p")
    response = ask_for(daemon, "encode-1", "p")
    assert response.status_code == 409
    assert (
        "encode-1 is the last worker that hosts encode: give encode to another" in response.json()["error"]["message"]
    )


def test_it_is_seen(at_first: Daemon) -> None:
    daemon = at_first
    change(daemon, "encode-2", "p")
    metrics = httpx.get(f"{daemon.url}/metrics").text
    assert 'unifiedserve:workers{stage="prefill"} 3.0' in metrics
    assert "unifiedserve:role_changes_total " in metrics
    steps = [each for each in daemon.engine.observation.trace()["traceEvents"] if each.get("cat") == "role"][-2:]
    assert [(each["name"], each["args"]) for each in steps] == [
        ("drain", {"instance": "encode-2", "stages": "e"}),
        ("start", {"instance": "encode-2", "stages": "p"}),
    ]
