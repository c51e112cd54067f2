"""Nodes that encode, and one that prefills and decodes: the answers of `transformers`, and no page held at the end."""

import concurrent.futures
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import daemon
import httpx
import pytest
from daemon import Daemon
from engines import DEFAULTS
from media import Clip
from reference import Reference
from test_fidelity import TOKENS, Question, question

from unifiedserve.config import CLUSTER_KEY, EngineConfig
from unifiedserve.messages.encoding import (
    KEY_HEADER,
    NODES_HEADER,
)

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
