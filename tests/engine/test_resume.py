"""Answers that one server has begun go on elsewhere: the reader of both gets what one would have sent."""

from itertools import pairwise
from typing import Any

import httpx
import pytest
from daemon import Daemon
from streamed_answers import ASKED, shown

from unifiedserve.server.answers.marks import HEADER, read_mark


def _blocks(daemon: Daemon, path: str, body: dict[str, Any]) -> list[bytes]:
    headers = {HEADER: "1", "X-Request-Id": "one"}
    answer = httpx.post(daemon.url + path, json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return [block + b"\n\n" for block in answer.content.split(b"\n\n") if block]


def _begun(blocks: list[bytes]) -> list[list[int]]:
    begun: list[list[int]] = []
    for block in blocks:
        if block.startswith(b":") and (told := read_mark(block)):
            index, tokens = told
            begun += [[] for _ in range(index + 1 - len(begun))]
            begun[index] += tokens
    return begun


@pytest.mark.daemon("answers that begin on another server")
@pytest.mark.parametrize("asked", ASKED)
def test_a_resumed_answer_is_the_rest_of_it(daemon: Daemon, asked: str) -> None:
    path, body = ASKED[asked]
    whole = _blocks(daemon, path, body)
    marks = [number + 1 for number, block in enumerate(whole) if block.startswith(b":")]
    assert len(marks) > 5
    assert all(later > sooner for sooner, later in pairwise(marks))
    for cut in (marks[0], marks[len(marks) // 2], marks[-1]):
        rest = _blocks(daemon, path, {**body, "resume": _begun(whole[:cut])})
        if asked in ("two sampled choices", "texts"):  # which come in any order
            assert sorted(map(str, shown(rest))) == sorted(map(str, shown(whole[cut:])))
        else:
            assert shown(rest) == shown(whole[cut:])
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
    path, body = ASKED["chat"]
    answer = httpx.post(daemon.url + path, json={**body, "resume": resume}, timeout=60)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]
    assert "resume" in answer.json()["error"]["param"]
