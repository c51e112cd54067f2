"""`unifiedserve ask` where the server is another one, and with words that look like markup."""

import asyncio
from pathlib import Path

import pytest
from chat_server import Exchange, say, served

from unifiedserve.cli.ask import Question, run_all
from unifiedserve.errors import ConfigError


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "[final] cut.webp"
    path.write_bytes(b"RIFF")
    return path


async def ask(url: str, picture: Path, text: str = "Who?") -> int:
    wanted = Question(text=text, medium=picture, max_tokens=4)
    return await asyncio.to_thread(run_all, [wanted], url=url)


@pytest.mark.parametrize(
    ("page", "status", "words"),
    [
        (b"<html>hello</html>", 200, "gave no id of the file: is this a UnifiedServe server"),
        (b"[]", 200, "gave no id of the file"),
        (b'{"error": "not here"}', 404, "v1/files answered 404"),
        (b'{"error": {"message": "no room"}}', 507, "no room"),
    ],
)
async def test_another_server_is_an_error_in_a_line(page: bytes, status: int, words: str, picture: Path) -> None:
    async with served(say, **{"v1/files": page}) as server:
        server.statuses["/v1/files"] = status
        with pytest.raises(ConfigError, match=words):
            await ask(server.url, picture)


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (b"data: {oops\n\n", "the stream holds what is no event"),
        (b'data: {"error": "a worker died"}\n\n', "a worker d"),
    ],
)
async def test_a_stream_that_breaks_is_an_error_in_a_line(stream: bytes, words: str, picture: Path) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(stream)
        await exchange.end()

    async with served(script, **{"v1/files": b'{"id": "file-1"}'}) as server:
        with pytest.raises(ConfigError, match=words):
            await ask(server.url, picture)
        (asked,) = server.seen
    assert asked.json["messages"][0]["content"][0]["type"] == "image_url"


async def test_an_answer_is_shown_though_the_server_keeps_no_trace(
    picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(say, **{"v1/files": b'{"id": "file-1"}'}) as server:
        assert await ask(server.url, picture) == 0
    assert capsys.readouterr().out.rstrip().endswith("\nxxxx")


async def test_names_and_questions_are_shown_as_they_are(picture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with served(say, **{"v1/files": b"{}"}) as server:
        with pytest.raises(ConfigError):
            await ask(server.url, picture, "Is [/this] it, or [that]?")
    assert "[final] cut.webp: Is [/this] it, or [that]?" in capsys.readouterr().out


async def test_no_proxy_is_asked(picture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with served(say, **{"v1/files": b"{}"}) as server:
        with pytest.raises(ConfigError, match="gave no id"):
            await ask(server.url, picture)


@pytest.mark.parametrize(
    ("url", "words"),
    [("http://a:b", "Invalid port"), ("http://127.0.0.1:99999", "last port is 65535"), ("http://[::1", "Invalid port")],
)
async def test_an_url_that_is_none(url: str, words: str, picture: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        await ask(url, picture)


async def test_a_key_that_no_header_can_hold(picture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIFIEDSERVE_API_KEY", "clé")
    with pytest.raises(ConfigError, match="UNIFIEDSERVE_API_KEY"):
        await ask("http://127.0.0.1:1", picture)
