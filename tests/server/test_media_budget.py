"""Media count before they are in memory, once each, and by kind; texts never wait for them."""

import asyncio
import base64
import gc
import io
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import httpx
import msgspec
import pytest
from PIL import Image
from scripted import ScriptedEngine
from scripted_app import connected, question

from ipc_buffers import list_arenas
from unifiedserve.config import EngineConfig
from unifiedserve.engine.admission.media import inspect
from unifiedserve.engine.requests import arrivals
from unifiedserve.engine.requests.arrivals import Arrivals
from unifiedserve.engine.requests.spool import Spool
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import Delta, GenerateRequest, MediaInput
from unifiedserve.messages.media import MediaKind, VideoInfo
from unifiedserve.reading.readers import ReadHere
from unifiedserve.reading.work import opened
from unifiedserve.server.chat.request import ChatRequest
from unifiedserve.server.media import file_store
from unifiedserve.server.media.budget import RequestBudget
from unifiedserve.server.media.fetcher import MediaFetcher
from unifiedserve.server.requests.conversation import conversation

PATH = "/v1/chat/completions"
MIB = 1 << 20


def part(url: str, kind: str = "image") -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url}}


def inline(size: int) -> str:
    return "data:;base64," + base64.b64encode(bytes(size)).decode()


async def uploaded(client: httpx.AsyncClient, size: int) -> str:
    response = await client.post("/v1/files", files={"file": ("a", bytes(size))}, data={"purpose": "vision"})
    id: str = response.json()["id"]
    return id


async def test_a_medium_that_is_named_often_is_read_and_kept_once() -> None:
    engine = ScriptedEngine(max_media_mib=1)
    async with connected(engine) as client:
        id = await uploaded(client, MIB)
        response = await client.post(PATH, json=question([part(id) for _ in range(30)]))
        assert response.status_code == 200
    media = engine.requests[0].media
    assert len(media) == 30
    assert [medium.data is media[0].data and medium is not media[0] for medium in media[1:]] == [True] * 29


async def test_media_of_one_request_are_bounded_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(file_store, "_read", lambda kept: read.append(kept) or bytes(kept.size))
    async with connected(ScriptedEngine(max_media_mib=1)) as client:
        ids = [await uploaded(client, MIB) for _ in range(3)]
        response = await client.post(PATH, json=question([part(id) for id in ids]))
    assert response.status_code == 413
    assert "more than 2 MiB together" in response.json()["error"]["message"]
    assert len(read) <= 2


class Waiting(ScriptedEngine):
    """Answers when it is told to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.go_on = asyncio.Event()
        self.waiting = asyncio.Semaphore(0)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        if request.media:
            self.waiting.release()
            await self.go_on.wait()
        async for delta in super().generate(request):
            yield delta


async def test_a_kind_that_is_full_delays_no_other_kind_and_no_text() -> None:
    engine = Waiting(max_media_mib=1)
    async with connected(engine) as client:
        ids = [await uploaded(client, MIB) for _ in range(3)]
        video = question([part(ids[0], "video"), part(ids[1], "video")])
        first = [asyncio.create_task(client.post(PATH, json=video)) for _ in range(2)]
        for _ in first:
            await engine.waiting.acquire()
        full = await client.post(PATH, json=question([part(ids[2], "video")]))
        assert full.status_code == 429
        assert "MiB of videos" in full.json()["error"]["message"]
        assert (await client.post(PATH, json=question("a text"))).status_code == 200
        image = asyncio.create_task(client.post(PATH, json=question([part(ids[2])])))
        await engine.waiting.acquire()
        engine.go_on.set()
        assert [(await task).status_code for task in (*first, image)] == [200] * 3


async def test_too_many_media_are_refused_before_any_is_fetched() -> None:
    engine = ScriptedEngine()
    async with connected(engine) as client:
        response = await client.post(PATH, json=question([part(inline(1)) for _ in range(1001)]))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages[0].content[1000].image_url.url"
    assert engine.requests == []


async def test_clients_that_leave_while_media_are_fetched_leave_their_room_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = asyncio.Semaphore(0)

    async def never(self: MediaFetcher, kind: MediaKind, url: str, options: object, budget: RequestBudget) -> None:
        budget.take(kind, 2 * MIB)
        begun.release()
        await asyncio.Event().wait()

    monkeypatch.setattr(MediaFetcher, "fetch", never)
    config = EngineConfig.of(max_media_mib=1)
    fetcher = MediaFetcher(config, file_store.FileStore(config))
    asked = msgspec.convert(question([part("https://clips.test/a.png")]), ChatRequest)
    gc.disable()
    try:
        for _ in range(2):  # each takes half of what there is
            fetching = asyncio.create_task(conversation(asked, asked.messages, fetcher))
            await begun.acquire()
            fetching.cancel()
            await asyncio.wait([fetching])
        fetcher.budget.of_request().take("image", 2 * MIB)
    finally:
        gc.enable()


class Table(list[SimpleNamespace]):
    """Requests in an engine that nobody has to wait for."""

    queue = SimpleNamespace(wait=lambda requests: 0.0)


def test_the_engine_refuses_media_by_kind_and_no_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_MEDIA_BYTES", MIB)
    nothing: Any = None
    table: Any = Table([SimpleNamespace(media_bytes=Counter({"video": 2 * MIB}))])
    taking = Arrivals(EngineConfig(), nothing, table, nothing, nothing, nothing, nothing)
    taking._check_media(GenerateRequest(id="text"))
    taking._check_media(GenerateRequest(id="image", media=[MediaInput(kind="image", data=b"x")]))
    with pytest.raises(RequestError, match="2 MiB of videos"):
        taking._check_media(GenerateRequest(id="video", media=[MediaInput(kind="video", data=b"x")]))
    taking.close()


def test_a_request_s_media_are_in_shared_memory_once_and_count_there() -> None:
    data = bytes(1000)
    media = [MediaInput(kind="image", data=data, held="budget") for _ in range(30)]
    spool = Spool(lambda name: f"test-spool-{name}", 1)
    spool.take(media)
    try:
        assert spool.bytes == {"image": 1000}
        assert len({medium.where for medium in media}) == 1
        assert {(medium.data, medium.held) for medium in media} == {(None, None)}
    finally:
        spool.close()


def test_media_of_a_request_are_pieces_of_one_arena_which_goes_with_it() -> None:
    kept = [bytes([number]) * (number + 1) for number in range(200)]
    media = [MediaInput(kind="image", data=data) for data in kept]
    spool = Spool(lambda name: f"test-pieces-{name}", 1)
    spool.take(media)
    (name,) = {medium.where.arena for medium in media}
    assert name in {arena.name for arena in list_arenas()}
    assert [bytes(cast(memoryview, opened(medium.where))) for medium in media] == kept
    assert spool.bytes == {"image": sum(map(len, kept))}
    spool.close()
    spool.close()
    assert name not in {arena.name for arena in list_arenas()}


def test_frames_that_come_twice_have_each_time_their_own_rate() -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    size = len(file.getvalue())
    data = file.getvalue() * 2
    media = [MediaInput(kind="video", data=data, frames=[size, size], fps=fps) for fps in (2.0, 4.0)]
    with closing(Spool(lambda name: f"test-rates-{name}", 1)) as spool:
        spool.take(media)
        assert [info.duration for info in inspect(media, 64, ReadHere()) if isinstance(info, VideoInfo)] == [1.0, 0.5]


def test_a_request_without_bytes_takes_no_shared_memory() -> None:
    spool = Spool(lambda name: f"test-none-{name}", 1)
    spool.take([MediaInput(kind="image", path="somewhere.png")])
    assert not [arena.name for arena in list_arenas() if arena.name.startswith("test-none-")]
    spool.close()
