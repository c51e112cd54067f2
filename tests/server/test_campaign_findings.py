"""What hostile clients found (bench/campaign), so that it stays mended."""

import asyncio
import random

import httpx
import pytest

from unifiedserve.errors import RequestError
from unifiedserve.server import connections
from unifiedserve.server.access.hosts import Hosts
from unifiedserve.server.chat.request import ChatRequest
from unifiedserve.server.requests import parse
from unifiedserve.server.turns import Turns

PATH = "/v1/chat/completions"
JSON = {"content-type": "application/json"}


def names(count: int) -> bytes:
    """Return so many members of an object, each with a name of its own."""
    draw = random.Random(1)
    return b",".join(b'"%x":"0"' % draw.getrandbits(64) for _ in range(count))


@pytest.mark.parametrize("body", [b'{"metadata":{%b}}', b"{%b}", b'{"messages":[],"logit_bias":{%b}}'])
async def test_names_by_the_hundred_thousand_are_refused_before_they_are_parsed(
    client: httpx.AsyncClient, body: bytes
) -> None:
    response = await client.post(PATH, content=body % names(parse._MOST_NAMES + 1), headers=JSON)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"


def test_as_many_names_as_may_be_are_parsed() -> None:
    with pytest.raises(RequestError, match="`messages` is missing"):
        parse.parse(b'{"metadata":{%b}}' % names(parse._MOST_NAMES - 1), ChatRequest)


@pytest.mark.parametrize(("method", "path"), [("GET", "/" + "x" * 5000), ("X" * 5000, PATH)])
async def test_an_error_repeats_no_long_path(client: httpx.AsyncClient, method: str, path: str) -> None:
    response = await client.request(method, path)
    assert response.status_code in (404, 405)
    assert response.json()["error"]["message"]
    assert len(response.content) < 1000


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://]", "null", ""])
async def test_an_origin_that_is_no_url_is_a_stranger(client: httpx.AsyncClient, origin: str) -> None:
    form = {"data": {"purpose": "vision"}, "files": {"file": b"x"}}
    response = await client.post("/v1/files", headers={"Origin": origin}, **form)  # type: ignore[arg-type]
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "forbidden_origin"


async def test_requests_that_come_at_once_begin_in_turns_of_the_loop() -> None:
    turns, began = Turns(3), []

    async def begin(number: int) -> None:
        await turns.take()
        began.append(number)

    tasks = [asyncio.ensure_future(begin(number)) for number in range(20)]
    tasks[5].cancel()
    most = 0
    while not all(task.done() for task in tasks):
        before = len(began)
        await asyncio.sleep(0)
        most = max(most, len(began) - before)
    assert began == [number for number in range(20) if number != 5]
    assert 1 < most <= 2 * 3  # a turn of ours sees the end of one and the beginning of the next
    await begin(20)
    assert began[-1] == 20


async def test_a_stream_goes_on_while_a_crowd_of_requests_comes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two requests of a crowd the loop turns: none of its turns begins many."""
    begun: list[int] = [0]
    check = Hosts.check

    def count(self: Hosts, header: str | None) -> None:
        begun[-1] += 1
        check(self, header)

    monkeypatch.setattr(Hosts, "check", count)

    async def turn() -> None:
        while True:
            begun.append(0)
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    async with httpx.AsyncClient(base_url=url) as client:
        answers = await asyncio.gather(*(client.get("/version") for _ in range(60)))
    turning.cancel()
    assert {answer.status_code for answer in answers} == {200}
    assert sum(begun) == 60
    assert max(begun) <= 2 * connections._BEGIN_A_TURN


async def test_the_document_tells_of_every_stream(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    for path in (PATH, "/v1/completions", "/v1/responses"):
        assert set(paths[path]["post"]["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}


async def test_answers_that_would_be_one_giant_body_are_refused(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/completions", json={"prompt": ["a"] * 17, "n": 64})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "n"
    assert (await client.post("/v1/completions", json={"prompt": ["a"] * 4, "n": 4})).status_code == 200
