"""The router before nodes that break off, refuse, go away and come back."""

import asyncio
import contextlib
import gzip
import json
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("aiohttp", reason="routers need unifiedserve[cluster]")

import aiohttp
from fake_node import MODEL, FakeNode
from prometheus_client.parser import text_string_to_metric_families
from served_router import served

from unifiedserve.cluster.members import Member, Membership
from unifiedserve.cluster.router.app import Router
from unifiedserve.cluster.router.bodies import Bodies
from unifiedserve.cluster.router.members import FROM_STDIN, members_of, told
from unifiedserve.cluster.routing import Policy
from unifiedserve.errors import ConfigError
from unifiedserve.placement import Stage

CHAT = "/v1/chat/completions"
TOKENS = 30
WHOLE = "data: begin\n\n" + "".join(f"data: {n} \n\n" for n in range(TOKENS)) + "data: [DONE]\n\n"


def asked(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Go."}], "stream": True, "max_tokens": TOKENS, **fields}


class Cluster:
    """A router over nodes, and a client of it."""

    def __init__(self, client: httpx.AsyncClient, router: Router, nodes: list[FakeNode]) -> None:
        self.client = client
        self.router = router
        self.nodes = nodes

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Return when the router has heard of something."""
        while not condition():
            await self.router.nodes.wait(1)

    async def told(self, nodes: list[FakeNode], **fields: Any) -> None:
        """Tell the router of these nodes, and wait until they take requests."""
        names = {node.url: f"n{number}" for number, node in enumerate(self.nodes)}
        self.router.nodes.follow([Member(name=names[each.url], pool="p", url=each.url, **fields) for each in nodes])
        if not fields:
            await self.wait_for(lambda: sum(each.takes_requests for each in self.router.nodes.each()) == len(nodes))


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the router wait for nodes that answer, however long this machine keeps them from it."""
    for module in ("nodes", "holders", "plans", "timeline"):
        monkeypatch.setattr(f"unifiedserve.cluster.router.{module}._PATIENCE", aiohttp.ClientTimeout(total=300))
    monkeypatch.setattr("unifiedserve.cluster.router.relay._UNTIL_A_NODE", float("inf"))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the router look at a silent node again soon."""
    monkeypatch.setattr("unifiedserve.cluster.router.nodes._PATIENCE", aiohttp.ClientTimeout(total=0.7))


@contextlib.asynccontextmanager
async def cluster(
    *nodes: FakeNode, policy: Policy = Policy.COST, tracer: Any = None, cors_origins: Collection[str] = ()
) -> AsyncIterator[Cluster]:
    async def nobody() -> AsyncIterator[Membership]:
        for none in list[Membership]():
            yield none

    for node in nodes:
        await node.start()
    router = Router(policy, nobody(), tracer)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(router.running())
        url = await stack.enter_async_context(served(router, cors_origins))
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=300))
        own = Cluster(client, router, list(nodes))
        await own.told(list(nodes))
        yield own
    for node in nodes:
        await node.stop()


@pytest.mark.parametrize("host", ["", "a..b", "a" * 64, "[::1", "a:0", "a:x"])
def test_a_node_whose_name_nobody_can_look_up_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="expected URLs such as"):
        members_of(f"http://b:80,http://{host}")


@pytest.mark.parametrize("host", ["a", "a_b.c-d:80", "10.0.0.7", "[fe80::1]:80", "ü.example", "a." * 60 + "b"])
def test_a_node_may_have_any_other_name(host: str) -> None:
    assert members_of(f"http://{host}/")[0].url == f"http://{host}"


async def test_it_says_so_when_it_hears_no_more_of_its_members(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "members").touch()
    with (tmp_path / "members").open() as file:  # only pipes and sockets can be followed
        monkeypatch.setattr(sys, "stdin", file)
        async with Router(Policy.COST, told(FROM_STDIN)).running():
            while not caplog.records:
                await asyncio.sleep(0.001)
    assert "the members stay as they are" in caplog.text


@pytest.mark.parametrize("breaks", [[0], [1], [17], [TOKENS - 1], [3, 9, 20]])
async def test_another_node_goes_on_with_an_answer(breaks: list[int]) -> None:
    first, second = FakeNode(), FakeNode(wait=1.0)
    first.breaks_after, second.breaks_after = breaks[::2], breaks[1::2]
    async with cluster(first, second) as own:
        answer = await own.client.post(CHAT, json=asked())
        assert answer.text == WHOLE
        requests = first.requests + second.requests
        assert len(requests) == len(breaks) + 1
        assert len(set(first.ids + second.ids)) == 1
        assert all(list(each["resume"][0] if each["resume"] else []) == list(range(len((each["resume"] or [[]])[0])))
                   for each in requests if "resume" in each)  # fmt: skip


@pytest.mark.parametrize("begun", [[], [[]], [[0, 1, 2]]])
async def test_an_answer_that_a_client_resumes_goes_on_from_both(begun: list[list[int]]) -> None:
    first, second = FakeNode(), FakeNode(wait=1.0)
    first.breaks_after = [6]
    async with cluster(first, second) as own:
        answer = await own.client.post(CHAT, json=asked(resume=begun))
        assert answer.text == "data: " + WHOLE.split("data: ", 2 + sum(map(len, begun)))[-1]
        assert second.requests[0]["resume"] == [list(range(6))]


async def test_who_goes_on_hears_the_id_that_the_client_has() -> None:
    first, second = FakeNode(), FakeNode(wait=1.0)
    first.breaks_after = [5]
    async with cluster(first, second) as own:
        answer = await own.client.post(CHAT, json=asked(), headers={"X-Begun-Id": "mine"})
        assert answer.headers["x-request-id"] == "answer-1"
        assert (first.begun_ids, second.begun_ids) == ([None], ["answer-1"])


async def test_a_node_that_keeps_something_and_breaks_off_is_named() -> None:
    node = FakeNode()
    node.kept = {"/v1/files/file-abc"}
    async with cluster(node) as own:
        answer = await own.client.delete("/v1/files/file-abc")
        assert (answer.status_code, "broke off" in answer.json()["error"]["message"]) == (503, True)


async def test_a_node_that_shuts_down_hands_its_streams_on() -> None:
    first, second = FakeNode(), FakeNode(wait=1.0)
    first.breaks_after = [5]
    first.last_words = b'data: {"error":{"message":"the server is shutting down","type":"server_error"}}\n\n'
    async with cluster(first, second) as own:
        assert (await own.client.post(CHAT, json=asked())).text == WHOLE


async def test_answers_that_are_not_streamed_are_asked_for_again() -> None:
    first, second = FakeNode(), FakeNode(wait=1.0)
    first.breaks_after = [0]
    async with cluster(first, second) as own:
        answer = await own.client.post(CHAT, json=asked(stream=False))
        assert answer.json()["from"] == second.url


async def test_a_full_node_is_passed_over() -> None:
    first, second = FakeNode(), FakeNode(wait=1.0)
    first.refuses = 1
    async with cluster(first, second) as own:
        assert (await own.client.post(CHAT, json=asked())).text == WHOLE
        first.refuses = second.refuses = 1
        answer = await own.client.post(CHAT, json=asked())
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")


async def test_a_refusal_is_told_though_another_node_broke_off() -> None:
    first, second = FakeNode(), FakeNode(wait=1.0)
    first.refuses, second.breaks_after = 1, [0]
    async with cluster(first, second) as own:
        answer = await own.client.post(CHAT, json=asked(stream=False))
        assert (answer.status_code, answer.json()["error"]["message"]) == (429, "busy")


async def test_a_request_that_ends_every_node_ends() -> None:
    first, second = FakeNode(), FakeNode()
    first.breaks_after = second.breaks_after = [3] * 20
    async with cluster(first, second) as own:
        answer = await own.client.post(CHAT, json=asked())
        *events, last = answer.text.removesuffix("\n\n").split("\n\n")
        assert events == WHOLE.split("\n\n")[:4]
        assert "no node takes requests" in json.loads(last.removeprefix("data: "))["error"]["message"]


async def test_who_leaves_is_aborted_at_the_node() -> None:
    node = FakeNode()
    node.pause = 0.01
    async with cluster(node) as own:
        async with own.client.stream("POST", CHAT, json=asked(max_tokens=10_000)) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: 3 "):
                    break
        await node.left.wait()


async def test_draining_nodes_get_nothing_new() -> None:
    first, second = FakeNode(), FakeNode(wait=9.0)
    async with cluster(first, second) as own:
        own.router.nodes.follow(
            [Member(name="n0", pool="p", url=first.url, draining=True), Member(name="n1", pool="p", url=second.url)]
        )
        await own.client.post(CHAT, json=asked())
        assert (len(first.requests), len(second.requests)) == (0, 1)


async def test_requests_wait_for_a_node_to_come() -> None:
    node = FakeNode()
    async with cluster(node) as own:
        await own.told([node], draining=True)
        asking = asyncio.create_task(own.client.post(CHAT, json=asked()))
        await own.router.nodes.wait(1)
        assert not asking.done()
        await own.told([node])
        assert (await asking).text == WHOLE


async def test_requests_wait_for_a_pool_that_sleeps() -> None:
    node, other = FakeNode(), FakeNode("other")
    async with cluster(other, node) as own:
        own.router.nodes.follow([], ["sleeping"])
        asking = [asyncio.create_task(own.client.post(CHAT, json=asked(model=model))) for model in (None, "new")]
        while (await own.client.get("/health")).json()["waiting"] < len(asking):
            pass
        own.router.nodes.follow([Member(name="s-0", pool="sleeping", url=node.url)])
        assert (await asking[0]).text == WHOLE
        asking[1].cancel()
        assert (await own.client.post(CHAT, json=asked(model="new"))).status_code == 404
        own.router.nodes.follow([], ["sleeping"])
        assert (await own.client.post(CHAT, json=asked(model="new"))).status_code == 404  # all models are known by now


async def test_requests_wake_the_pools_that_they_need() -> None:
    encoding, answering, other = FakeNode(), FakeNode(), FakeNode("other")
    encoding.stages, answering.stages = (Stage.VISION, Stage.ENCODE), (Stage.PREFILL, Stage.DECODE)
    pools = {"media": encoding, "text": answering, "others": other}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    async with cluster(*pools.values()) as own:
        nodes = own.router.nodes
        nodes.follow([Member(name=pool, pool=pool, url=node.url) for pool, node in pools.items()])
        await own.wait_for(lambda: len(nodes.each()) == len(pools) and all(node.report for node in nodes.each()))
        for awake, content, awaited in (
            ([], "Go.", ["text"]),
            ([], [image], ["media", "text"]),
            (["text"], [image], ["media"]),
            (["media"], [image], ["text"]),
        ):
            nodes.follow([Member(name=pool, pool=pool, url=pools[pool].url) for pool in awake], pools.keys() - awake)
            body = asked(model=MODEL, messages=[{"role": "user", "content": content}])
            asking = asyncio.create_task(own.client.post(CHAT, json=body))
            while (health := (await own.client.get("/health")).json())["waiting"] == 0:
                pass
            assert health["awaited"] == awaited
            asking.cancel()
            while (health := (await own.client.get("/health")).json())["waiting"] > 0:
                pass
            assert health["awaited"] == []


async def test_a_router_whose_pools_sleep_is_ready_and_lists_their_models() -> None:
    """Else nothing would send it the request that wakes them."""
    node = FakeNode()
    async with cluster(node) as own:
        awake = (await own.client.get("/v1/models")).json()
        own.router.nodes.follow([], ["p"])
        ready = await own.client.get("/ready")
        assert (ready.status_code, ready.json()["status"]) == (200, "asleep")
        assert (await own.client.get("/v1/models")).json() == awake
        assert (await own.client.get(f"/v1/models/{MODEL}")).json() == awake["data"][0]
        own.router.nodes.follow([])
        assert (await own.client.get("/ready")).status_code == 503


@pytest.mark.parametrize(
    "body",
    [b'{"messages":' + b"[" * 100_000, b'{"messages":"\xff"}', b'{"messages":[{"type":["image_url"]}]}'],
    ids=["deep", "no UTF-8", "odd type"],
)
async def test_a_body_that_a_router_cannot_read_is_for_a_node_to_refuse(body: bytes) -> None:
    async with cluster(FakeNode()) as own:
        answer = await own.client.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, "no JSON for a node")


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_compressed_requests_are_read_as_others(encoding: str) -> None:
    """They find their model's node, and another one goes on with their streams."""
    other, first, second = FakeNode("other"), FakeNode(), FakeNode(wait=1.0)
    first.breaks_after = [5]
    compress = gzip.compress if encoding == "gzip" else zlib.compress
    async with cluster(other, first, second) as own:
        body = compress(json.dumps(asked(model=MODEL)).encode())
        headers = {"content-type": "application/json", "content-encoding": encoding, "expect": "100-continue"}
        assert (await own.client.post(CHAT, content=body, headers=headers)).text == WHOLE
        assert second.requests[0]["resume"] == [list(range(5))]
        bad = await own.client.post(CHAT, content=b"no " + body, headers={**headers, "content-encoding": "gzip"})
        assert bad.status_code == 400
        assert (
            await own.client.post(CHAT, content=body, headers={**headers, "content-encoding": "br"})
        ).status_code == 415


async def test_a_body_that_stalls_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unifiedserve.server.requests.body._PATIENCE", 0.2)

    async with cluster(FakeNode()) as own:
        reader, writer = await asyncio.open_connection(own.client.base_url.host, own.client.base_url.port)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f'{head}Content-Length: 99\r\n\r\n{{"messages":'.encode())
        assert b" 408 " in await reader.readuntil(b"\r\n")
        assert own.router.bodies.bytes == 0
        writer.close()


async def test_names_that_others_point_at_a_router_are_refused() -> None:
    """Nodes cannot: they are asked by their own names, whatever a page called the router."""
    node = FakeNode()
    async with cluster(node) as own:
        for name, status in (("127.0.0.1", 200), ("api.example.com:80", 200), ("evil.com", 403)):
            answer = await own.client.post(CHAT, json=asked(), headers={"host": name})
            assert answer.status_code == status
        assert len(node.requests) == 2
        assert (await own.client.get("/v1/nodes", headers={"host": "evil.com"})).status_code == 403
        assert (await own.client.get("/ready", headers={"host": "evil.com"})).status_code == 200


PAGE = {"origin": "https://app.example"}
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, x-other"}


async def test_pages_of_allowed_origins_use_a_router() -> None:
    node = FakeNode()
    async with cluster(node, cors_origins=["https://app.example"]) as own:
        preflight = await own.client.options(CHAT, headers=PAGE | PREFLIGHT)
        assert preflight.status_code == 200
        assert {name: value for name, value in preflight.headers.items() if name.startswith("access-control")} == {
            "access-control-allow-origin": "https://app.example",
            "access-control-allow-methods": "POST",
            "access-control-allow-headers": "authorization, x-other",
            "access-control-expose-headers": "*",
            "access-control-max-age": "600",
        }
        for stream in (True, False):
            answer = await own.client.post(CHAT, json=asked(stream=stream), headers=PAGE)
            assert answer.headers.get_list("access-control-allow-origin") == ["https://app.example"]
            assert answer.headers["vary"] == "Origin"
        assert node.origins == [None, None], "a node has a list of its own"
        for failing in (await own.client.post("/v1/nothing", headers=PAGE), await own.client.get(CHAT, headers=PAGE)):
            assert (failing.status_code >= 400, failing.headers["access-control-allow-origin"]) == (
                True,
                PAGE["origin"],
            )


async def test_other_pages_do_not() -> None:
    node = FakeNode()
    other = {"origin": "https://evil.example"}
    async with cluster(node, cors_origins=["https://app.example"]) as own:
        refused = await own.client.options(CHAT, headers=other | PREFLIGHT)
        assert (refused.status_code, "--cors-origins" in refused.text) == (400, True)
        answer = await own.client.post(CHAT, json=asked(), headers=other)
        assert "access-control-allow-origin" not in answer.headers, "a browser keeps it from the page"
        assert node.origins == ["https://evil.example"], "for the node to refuse"
        assert "access-control-allow-origin" not in (await own.client.post(CHAT, json=asked())).headers
    async with cluster(FakeNode()) as own:
        assert (await own.client.options(CHAT, headers=PAGE | PREFLIGHT)).status_code == 405
        answer = await own.client.post(CHAT, json=asked(), headers=PAGE)
        assert not {"access-control-allow-origin", "vary"} & answer.headers.keys()


@pytest.mark.usefixtures("impatient")
async def test_a_router_holds_so_many_bytes_together() -> None:
    node = FakeNode()
    node.hangs_at = 3
    async with cluster(node) as own:
        own.router.bodies = Bodies(1000)
        long = asked(messages=[{"role": "user", "content": "x" * 900}])
        async with own.client.stream("POST", CHAT, json=asked(messages=[{"role": "user", "content": "x" * 500}])):
            assert (await own.client.post(CHAT, json=long)).status_code == 503
        assert (await own.client.post(CHAT, json=asked(messages=["x" * 1000]))).status_code == 413
        while own.router.bodies.bytes:
            await own.client.get("/health")
        node.hangs_at = None
        node.silent.clear()
        (known,) = own.router.nodes.each()
        await own.wait_for(lambda: known.takes_requests)
        assert (await own.client.post(CHAT, json=long)).text == WHOLE


async def test_models_are_those_of_all_pools() -> None:
    first, second = FakeNode(), FakeNode("other")
    async with cluster(first, second) as own:
        listed = (await own.client.get("/v1/models")).json()["data"]
        assert [each["id"] for each in listed] == [MODEL, "other"]
        await own.client.post(CHAT, json=asked(model="other"))
        assert (len(first.requests), len(second.requests)) == (0, 1)
        unknown = await own.client.post(CHAT, json=asked(model="third"))
        assert unknown.status_code == 404
        assert "there are fake, other" in unknown.json()["error"]["message"]
        await own.told([first])
        assert (await own.client.get("/v1/models/other")).status_code == 503  # it may come back


async def test_what_one_node_keeps_is_found() -> None:
    first, second = FakeNode(), FakeNode(wait=9.0)
    second.kept = {"/v1/files/file-abc", "/v1/responses/resp_" + "0" * 32}
    async with cluster(first, second) as own:
        assert (await own.client.get("/v1/files/file-abc")).json()["from"] == second.url
        assert (await own.client.get("/v1/files/file-none")).status_code == 404
        await own.client.post("/v1/responses", json=asked(previous_response_id="resp_" + "0" * 32))
        video = {"type": "video_url", "video_url": {"url": "file-abc"}}
        await own.client.post(CHAT, json=asked(messages=[{"role": "user", "content": [video]}]))
        large = {"type": "text", "text": "x" * (2 << 20)}  # which is read beside the event loop
        await own.client.post(CHAT, json=asked(messages=[{"role": "user", "content": [large, video]}]))
        assert (len(first.requests), len(second.requests)) == (0, 3)


async def test_a_file_is_kept_for_the_model_that_its_upload_names() -> None:
    first, second = FakeNode("a"), FakeNode("b")
    async with cluster(first, second) as own:
        await own.client.post("/v1/files?model=b", json=asked())
        assert (len(first.requests), len(second.requests)) == (0, 1)
        assert (await own.client.post("/v1/files?model=c", json=asked())).status_code == 404
        second.kept = {"/v1/files/file-abc"}
        video = [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "file-abc"}}]}]
        for fields, served in (({"model": "b"}, 200), ({}, 200), ({"model": "a"}, 404)):
            answer = await own.client.post(CHAT, json=asked(messages=video, **fields))
            assert answer.status_code == served
        assert "/v1/files?model=a" in answer.json()["error"]["message"]
        assert (len(first.requests), len(second.requests)) == (0, 3)


async def test_the_next_turn_of_a_conversation_goes_where_the_first_was() -> None:
    nodes = [FakeNode(), FakeNode(), FakeNode()]
    async with cluster(*nodes) as own:
        turns = [{"role": "user", "content": "A long question about rivers. " * 90}]
        for _ in range(4):
            await own.client.post(CHAT, json=asked(messages=turns))
            for node in own.router.nodes.each():
                await own.wait_for(lambda report=node.report, node=node: node.report is not report)
            turns += [{"role": "assistant", "content": "Well."}, {"role": "user", "content": "And then?"}]
        assert sorted(len(node.requests) for node in nodes) == [0, 0, 4]


@pytest.mark.parametrize("token", [-1, 0, 17])
async def test_nobody_waits_for_a_node_that_hangs(token: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unifiedserve.cluster.router.nodes._PATIENCE", aiohttp.ClientTimeout(total=1.5))
    monkeypatch.setattr("unifiedserve.cluster.router.nodes._AWAY", 1.0)
    first, second = FakeNode(), FakeNode(wait=1.0)
    first.hangs_at = token
    async with cluster(first, second) as own:
        answer = await own.client.post(CHAT, json=asked())
        assert answer.text == WHOLE
        assert first.silent.is_set()
        assert second.requests[0].get("resume") == (None if token < 0 else [list(range(token))] if token else [])


@pytest.mark.usefixtures("impatient")
async def test_others_take_over_from_a_node_that_is_silent_for_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long one that nobody could replace would be waited for."""
    monkeypatch.setattr("unifiedserve.cluster.router.nodes._AWAY", float("inf"))
    first, second = FakeNode(), FakeNode(wait=1.0)
    first.hangs_at = 17
    async with cluster(first, second) as own:
        assert (await own.client.post(CHAT, json=asked())).text == WHOLE
        assert second.requests[0]["resume"] == [list(range(17))]
        (known, _) = own.router.nodes.each()
        assert known.missed >= 2


async def test_a_node_that_cannot_be_reached_is_named() -> None:
    node = FakeNode()
    async with cluster(node) as own:
        await node.stop()
        (known,) = own.router.nodes.each()
        await own.wait_for(lambda: not known.takes_requests)
        known.heard -= 60
        answer = await own.client.get("/ready")
        assert answer.status_code == 503
        assert "n0 at" in answer.json()["unreachable"][0]


@pytest.mark.parametrize("babbles", [b"no JSON", b'{"model": "\xff"}', b"[" * 100_000])
async def test_a_node_that_babbles_comes_back_when_it_talks_again(babbles: bytes) -> None:
    node = FakeNode()
    async with cluster(node) as own:
        (known,) = own.router.nodes.each()
        node.babbles = babbles
        await own.wait_for(lambda: not known.takes_requests)
        node.babbles = b""
        await own.wait_for(lambda: known.takes_requests)


async def test_what_became_of_requests_is_counted() -> None:
    first, second = FakeNode(), FakeNode(wait=1.0)
    first.refuses, second.breaks_after = 1, [5]
    async with cluster(first, second) as own:
        assert (await own.client.post(CHAT, json=asked())).text == WHOLE
        told = (await own.client.get("/metrics")).text
    samples = {
        (sample.name.removeprefix("unifiedserve:router_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(told)
        for sample in family.samples
    }
    assert samples["requests_total", "200", "n1"] == 1
    assert samples["refusals_total", "n0"] == samples["breaks_total", "n1"] == 1
    assert samples["failures_total",] == samples["requests_in_flight",] == 0
    assert samples["node_wait_seconds", "n1"] == 1.0
    assert samples["time_to_answer_seconds_count",] == 1


def a_timeline(origin: float, stage: str, start: float) -> dict[str, Any]:
    names = [
        {"ph": "M", "name": "process_name", "pid": row, "tid": 0, "args": {"name": name}}
        for row, name in enumerate([stage, "idle"])
    ]
    work = {"ph": "X", "name": "step", "cat": stage, "pid": 0, "tid": 1, "ts": start, "dur": 5.0, "args": {}}
    return {"traceEvents": [*names, work], "displayTimeUnit": "ms", "otherData": {"origin": origin}}


async def test_a_request_is_drawn_over_its_nodes_by_one_clock() -> None:
    """Two nodes count from other moments; the router's own steps are there, too, with the one that broke off."""
    first, second, third = FakeNode(), FakeNode(wait=1.0), FakeNode(wait=2.0)
    first.breaks_after = [5]
    now = time.time()
    first.timeline, second.timeline = a_timeline(now, "prefill", 3e6), a_timeline(now + 1, "decode", 2.5e6)
    async with cluster(first, second, third) as own:
        await own.client.post(CHAT, json=asked(), headers={"X-Request-Id": "one"})
        trace = (await own.client.get("/debug/trace", params={"request_id": "chatcmpl-one"})).json()
        refused = await own.client.get("/debug/trace")
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    asked_of = {event["name"]: event["args"].get("error") for event in events if event["cat"] == "route"}
    assert asked_of == {"ask n0": "broke off", "ask n1": None}
    assert min(event["ts"] for event in events) == 0
    begun = {event["cat"]: event["ts"] for event in events}
    assert begun["decode"] - begun["prefill"] == pytest.approx(0.5e6, abs=1)
    names = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert set(names.values()) == {"router", "n0: prefill", "n1: decode"}
    assert {event["pid"] for event in events} == set(names)
    assert refused.status_code == 400


async def test_nodes_go_on_with_the_callers_trace() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra `otel` is not installed")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    first, second = FakeNode(), FakeNode(wait=1.0)
    first.breaks_after = [5]
    trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with cluster(first, second, tracer=provider.get_tracer("test")) as own:
        answer = await own.client.post(CHAT, json=asked(), headers={"traceparent": f"00-{trace}-{caller}-01"})
        assert answer.text == WHOLE
    lost, went_on, root = exporter.get_finished_spans()
    assert f"{root.parent.span_id:016x}" == caller
    assert {span.parent.span_id for span in (lost, went_on)} == {root.context.span_id}
    assert lost.attributes == {"unifiedserve.node": "n0", "error.type": "broke off"}
    assert went_on.attributes == {"unifiedserve.node": "n1"}
    parents = [f"00-{trace}-{span.context.span_id:016x}-01" for span in (lost, went_on)]
    assert first.traces + second.traces == parents
