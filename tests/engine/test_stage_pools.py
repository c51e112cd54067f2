"""Nodes that encode, and one that prefills and decodes: the answers of `transformers`, and no page held at the end."""

import concurrent.futures
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import daemon
import httpx
import msgspec
import pytest
from daemon import Daemon
from engines import DEFAULTS
from flashcodec.layouts import PatchLayout
from media import Clip
from questions import TOKENS, Question, question
from reference import Reference

from unifiedserve.config import CLUSTER_KEY, EngineConfig
from unifiedserve.errors import ErrorKind
from unifiedserve.messages.encoding import (
    KEY_HEADER,
    NODES_HEADER,
    PATH,
    EncodeFailure,
    EncodeRequest,
    pack_head,
    read_line,
)
from unifiedserve.messages.media import MediaPlan, Source
from unifiedserve.messages.wire import MediaSource

KEY = "a key of the cluster's own"
NAMES = ["text", "3 images", "9 frames", "image and video"]
NOBODY = "http://127.0.0.1:9"  # the port of a service that there is not


class Nodes(NamedTuple):
    text: Daemon
    encode: tuple[Daemon, Daemon]

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.encode]

    def wait_idle(self) -> None:
        for each in (self.text, *self.encode):
            each.wait_idle()


@pytest.fixture(scope="module")
def nodes(checkpoint: Path) -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv(CLUSTER_KEY, KEY)

        def start(placement: str) -> Daemon:
            config = EngineConfig.of(**{**DEFAULTS, "model": str(checkpoint), "placement": placement})
            return stack.enter_context(daemon.running(config))

        yield Nodes(start("p+d"), (start("v+e"), start("v+e")))


@pytest.fixture(scope="module")
def asked(clips: Callable[[int], Clip]) -> list[Question]:
    return [question(name, clips) for name in NAMES]


@pytest.fixture(scope="module")
def expected(hf: Reference, asked: list[Question]) -> list[list[int]]:
    return [hf.generate(each.case, TOKENS) for each in asked]


def post(text: Daemon, asked: Question, urls: list[str], key: str = KEY) -> httpx.Response:
    headers = {KEY_HEADER: key, NODES_HEADER: ",".join(f"{url} 0" for url in urls)} if urls else {}
    body = {"messages": asked.messages, "temperature": 0, "max_tokens": TOKENS, "return_token_ids": True}
    return httpx.post(f"{text.url}/v1/chat/completions", json={**body, **asked.options}, headers=headers, timeout=300)


def answer(text: Daemon, asked: Question, urls: list[str]) -> list[int]:
    response = post(text, asked, urls)
    assert response.status_code == 200, response.text
    return list(response.json()["choices"][0]["token_ids"])


def encoded(node: Daemon) -> int:
    events = node.engine.observation.trace()["traceEvents"]
    return sum(event["name"] == "encode" for event in events)


def test_answers_are_those_of_one_engine(nodes: Nodes, asked: list[Question], expected: list[list[int]]) -> None:
    """Together, and again, when what was read is cached."""
    for _ in range(2):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda each: answer(nodes.text, each, nodes.urls), asked * 2)) == expected * 2
    assert all(map(encoded, nodes.encode))
    nodes.wait_idle()


def test_a_node_that_is_not_there_is_replaced_by_another(
    nodes: Nodes, clips: Callable[[int], Clip], hf: Reference
) -> None:
    alone = question("1 image", clips)
    assert answer(nodes.text, alone, [NOBODY, nodes.urls[0]]) == hf.generate(alone.case, TOKENS)
    alone = question("8 frames", clips)
    refused = post(nodes.text, alone, [NOBODY])
    assert refused.status_code == 503
    assert refused.json()["error"]["message"].startswith(
        f"no node encodes the request's images and videos now ({NOBODY}: "
    )
    nodes.wait_idle()


def test_what_is_called_back_is_given_back_everywhere(nodes: Nodes, clips: Callable[[int], Clip]) -> None:
    asked = question("64 frames", clips)
    headers = {KEY_HEADER: KEY, NODES_HEADER: ",".join(f"{url} 0" for url in nodes.urls)}
    body = {"messages": asked.messages, "max_tokens": 400, "ignore_eos": True, "stream": True, **asked.options}
    for _ in range(3):
        with httpx.stream("POST", f"{nodes.text.url}/v1/chat/completions", json=body, headers=headers, timeout=300):
            pass  # it begins, and nobody reads it
    nodes.wait_idle()


def test_who_cannot_have_media_encoded_is_told_why(nodes: Nodes, asked: list[Question]) -> None:
    alone = post(nodes.text, asked[1], [])
    assert alone.status_code == 503
    assert "knows of none: ask the cluster's router" in alone.json()["error"]["message"]
    stranger = post(nodes.text, asked[1], nodes.urls, key="another")
    assert stranger.status_code == 503
    assert "set the same one for all nodes and routers" in stranger.json()["error"]["message"]
    to_encode = post(nodes.encode[0], asked[0], [])
    assert to_encode.status_code == 503
    assert "answers nothing itself" in to_encode.json()["error"]["message"]


def ask_to_encode(node: Daemon, body: bytes, key: str = KEY) -> httpx.Response:
    return httpx.post(node.url + PATH, content=body, headers={KEY_HEADER: key})


def test_nodes_that_do_not_fit_together_say_so(nodes: Nodes) -> None:
    features = nodes.encode[0].engine.features
    other = msgspec.structs.replace(features, dtype="bfloat16")
    plan = MediaPlan(kind="image", layout=PatchLayout(28, 28), units=1, patches_per_unit=4, tokens_per_unit=1)
    source = MediaSource(plan=plan, name="an image", where=Source(size=1))
    asked = EncodeRequest(id="a", features=other, token_ids=[], media=[plan], sources=[source], digests=[])
    told = read_line(ask_to_encode(nodes.encode[0], pack_head(asked) + b"x").text)
    assert told == EncodeFailure(
        "nodes do not fit together: dtype is float32 here and bfloat16 there", ErrorKind.CONFLICT
    )


def test_media_larger_than_an_encode_nodes_buffers_are_refused_in_a_line(nodes: Nodes) -> None:
    plan = MediaPlan(kind="image", layout=PatchLayout(28, 28), units=1, patches_per_unit=1 << 30, tokens_per_unit=1)
    source = MediaSource(plan=plan, name="an image", where=Source(size=1))
    features = nodes.encode[0].engine.features
    asked = EncodeRequest(id="a", features=features, token_ids=[], media=[plan], sources=[source], digests=[])
    told = read_line(ask_to_encode(nodes.encode[0], pack_head(asked) + b"x").text)
    assert isinstance(told, EncodeFailure)
    assert told.kind is ErrorKind.INVALID
    assert "pages of an encode node's patch buffer, which has" in told.message
    assert "--patch-buffer-mib" in told.message
    assert "\n" not in told.message


def test_an_encode_node_passes_a_video_through_a_small_patch_buffer(
    checkpoint: Path, nodes: Nodes, hf: Reference, clips: Callable[[int], Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CLUSTER_KEY, KEY)
    small = {**DEFAULTS, "patch_buffer_mib": 1, "model": str(checkpoint), "placement": "v+e"}
    asked = question("64 frames", clips)
    assert sum(frame.nbytes for frame in clips(64).frames) > 2 << 20
    with daemon.running(EngineConfig.of(**small)) as encoder:
        assert answer(nodes.text, asked, [encoder.url]) == hf.generate(asked.case, TOKENS)
        encoder.wait_idle()
    nodes.wait_idle()


def test_strangers_and_what_is_no_request_are_refused(nodes: Nodes) -> None:
    assert ask_to_encode(nodes.encode[0], b"", key="another").status_code == 403
    assert ask_to_encode(nodes.encode[0], b"\x00\x00").status_code == 400
    assert ask_to_encode(nodes.encode[0], b"\xff\xff\xff\xff{}").status_code == 400
    assert ask_to_encode(nodes.text, b"").status_code == 404


@pytest.mark.long
@pytest.mark.parametrize(("number", "instance"), [(0, "encode"), (0, "vision"), (1, "encode"), (2, "prefill")])
def test_a_killed_worker_loses_no_request(
    nodes: Nodes, hf: Reference, clips: Callable[[int], Clip], number: int, instance: str
) -> None:
    """Half of the clips are new to all nodes each time: of those nothing is cached."""
    node = (*nodes.encode, nodes.text)[number]
    asked = [question(f"{frames} frames", clips) for frames in range(10 + number * 8, 18 + number * 8)]
    expected = [hf.generate(each.case, TOKENS) for each in asked]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(answer, nodes.text, each, nodes.urls) for each in asked * 2]
        os.kill(node.engine.observation.worker_pids()[instance], signal.SIGKILL)
        assert [each.result() for each in answers] == expected * 2
    node.wait_for(lambda: instance in node.engine.observation.worker_pids())
    node.wait_healthy()
    nodes.wait_idle()
