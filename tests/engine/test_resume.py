"""Answers that one server has begun go on elsewhere: the reader of both gets what one would have sent."""

import json
from itertools import pairwise
from typing import Any

import httpx
import pytest
from daemon import Daemon

from unifiedserve.server.answers.marks import HEADER, read_mark

_CHAT = {"messages": [{"role": "user", "content": "Say it, then 🙂 say it again."}]}
_GREEDY = {"temperature": 0, "stream": True}
_ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {**_CHAT, **_GREEDY, "max_tokens": 20, "ignore_eos": True}),
    "two sampled choices": (
        "/v1/chat/completions",
        {**_CHAT, "stream": True, "max_tokens": 12, "n": 2, "seed": 3, "temperature": 1.0, "ignore_eos": True},
    ),
    "texts": (
        "/v1/completions",
        {"prompt": ["One", "And two"], **_GREEDY, "max_tokens": 9, "stream_options": {"include_usage": True}},
    ),
    "items": ("/v1/responses", {"input": "Say it.", **_GREEDY, "max_output_tokens": 12, "store": False}),
    "messages": ("/v1/messages", {**_CHAT, **_GREEDY, "max_tokens": 12}),
}
_CACHED = {"input_tokens", "cached_tokens", "cache_read_input_tokens", "input_tokens_details"}
_ITS_OWN = {*_CACHED, "created", "created_at", "completed_at"}


def _blocks(daemon: Daemon, path: str, body: dict[str, Any]) -> list[bytes]:
    headers = {HEADER: "1", "X-Request-Id": "one"}
    answer = httpx.post(daemon.url + path, json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return [block + b"\n\n" for block in answer.content.split(b"\n\n") if block]


def _shown(blocks: list[bytes]) -> list[Any]:
    """Return what clients read, without what differs from one request to the next of the same kind."""
    lines = [line for block in blocks for line in block.splitlines() if line.startswith(b"data: ")]
    return [_plain(json.loads(line[6:])) if b"[DONE]" not in line else line for line in lines]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if name not in _ITS_OWN}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _begun(blocks: list[bytes]) -> list[list[int]]:
    begun: list[list[int]] = []
    for block in blocks:
        if block.startswith(b":") and (told := read_mark(block)):
            index, tokens = told
            begun += [[] for _ in range(index + 1 - len(begun))]
            begun[index] += tokens
    return begun


@pytest.mark.daemon("answers that begin on another server")
@pytest.mark.parametrize("asked", _ASKED)
def test_a_resumed_answer_is_the_rest_of_it(daemon: Daemon, asked: str) -> None:
    path, body = _ASKED[asked]
    whole = _blocks(daemon, path, body)
    marks = [number + 1 for number, block in enumerate(whole) if block.startswith(b":")]
    assert len(marks) > 5
    assert all(later > sooner for sooner, later in pairwise(marks))
    for cut in (marks[0], marks[len(marks) // 2], marks[-1]):
        rest = _blocks(daemon, path, {**body, "resume": _begun(whole[:cut])})
        if asked in ("two sampled choices", "texts"):  # which come in any order
            assert sorted(map(str, _shown(rest))) == sorted(map(str, _shown(whole[cut:])))
        else:
            assert _shown(rest) == _shown(whole[cut:])
    daemon.wait_idle()


@pytest.mark.daemon("answers that begin on another server")
@pytest.mark.parametrize(
    ("resume", "reason"),
    [
        ([[1], [2]], "has 2 answers, of 1"),
        ([[10**9]], "has token 1000000000, of "),
        ([[5] * 40], "goes on with answer 0 where it has ended"),
        ([["a"]], "resume"),
    ],
)
def test_what_cannot_be_resumed_is_named(daemon: Daemon, resume: list[list[Any]], reason: str) -> None:
    path, body = _ASKED["chat"]
    answer = httpx.post(daemon.url + path, json={**body, "resume": resume}, timeout=60)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]
    assert "resume" in answer.json()["error"]["param"]
