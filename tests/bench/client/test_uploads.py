"""Media that are too large for a request's body: uploaded first where the server keeps files, else sent inside."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, say, served
from pieces import http, manner
from rich.console import Console

from unifiedserve.bench.records import Run
from unifiedserve.bench.requests import Arrival, Medium, Request, Turn
from unifiedserve.bench.run.measure import measure
from unifiedserve.bench.run.plan import Plan
from unifiedserve.bench.run.progress import Bar, shown
from unifiedserve.errors import ConfigError

KEEPS = {"v1/files": b'{"id": "file-7"}', "v1/files/file-7": b"{}"}


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "lecture.mp4"
    path.write_bytes(bytes(9 << 20))
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "still.png"
    path.write_bytes(b"pixels")
    return path


def about(*paths: Path) -> list[Arrival]:
    parts = tuple(Medium(kind="video" if path.suffix == ".mp4" else "image", path=str(path)) for path in paths)
    return [Arrival(0.0, Request(id="r", kind="video", turns=(Turn(parts=parts, max_tokens=2),)))]


async def run(server: ChatServer, dialect: str, *paths: Path, **fields: Any) -> tuple[Run, str]:
    """The run, and what it prints."""
    printed = io.StringIO()
    planned = Plan(name="n", workload="w", arrivals="a", seed=1, requests=about(*paths))
    async with http(server.url) as client:
        with shown(Console(file=printed)) as progress:
            bar = Bar(progress, "", planned.turns)
            return await measure(client, planned, manner(server.url, dialect, **fields), bar=bar), printed.getvalue()


def urls(server: ChatServer) -> list[str]:
    (exchange,) = server.seen
    return [part[part["type"]]["url"] for part in exchange.json["messages"][0]["content"]]


async def test_a_large_file_is_uploaded_where_the_server_keeps_files(large: Path, small: Path) -> None:
    async with served(say, **KEEPS) as server:
        found, printed = await run(server, "unifiedserve", large, small)
        asked = [(exchange.method, exchange.path) for exchange in server.others]
        assert urls(server) == ["file-7", "data:image/png;base64," + base64.b64encode(b"pixels").decode()]
    (record,) = found.records
    assert record.error is None
    assert found.media == "in the requests; files above 8 MiB uploaded before the run"
    assert f"media: {found.media}" in printed
    posted, deleted = asked.index(("POST", "/v1/files")), asked.index(("DELETE", "/v1/files/file-7"))
    assert posted < deleted
    upload = next(exchange for exchange in server.others if exchange.method == "POST")
    assert large.read_bytes() in upload.body


@pytest.mark.parametrize("dialect", ["vllm", "openai"])
async def test_it_is_in_the_request_where_there_are_no_files(dialect: str, large: Path) -> None:
    async with served(say) as server:
        found, printed = await run(server, dialect, large)
        (url,) = urls(server)
        assert not [exchange for exchange in server.others if "files" in exchange.path]
    assert base64.b64decode(url.removeprefix("data:video/mp4;base64,")) == large.read_bytes()
    assert found.media == "in the requests"
    assert "media: in the requests" in printed


async def test_nothing_is_uploaded_that_fits_or_goes_another_way(small: Path, large: Path) -> None:
    for paths, delivery in ([small], "auto"), ([large], "file"), ([large], "data"):
        async with served(say) as server:
            await run(server, "unifiedserve", *paths, delivery=delivery)
            assert not [exchange for exchange in server.others if "files" in exchange.path]


async def test_a_file_that_the_server_refuses(large: Path) -> None:
    refusal = json.dumps({"error": {"message": "The file is larger than 4 MiB."}}).encode()
    async with served(say, **{"v1/files": refusal}) as server:
        server.statuses["/v1/files"] = 413
        with pytest.raises(ConfigError, match=r"lecture\.mp4 cannot be uploaded: status 413: .* 4 MiB.*--media file"):
            await run(server, "unifiedserve", large)
        assert server.seen == []


async def test_a_file_that_has_to_make_room_for_others(large: Path) -> None:
    async with served(say, **{"v1/files": KEEPS["v1/files"]}) as server:
        with pytest.raises(ConfigError, match=r"lecture\.mp4 had to make room.*--media file"):
            await run(server, "unifiedserve", large)
        assert server.seen == []
