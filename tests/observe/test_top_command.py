"""`unifiedserve top` over a server: one look, and one line where there is nothing to look at."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from scripted import ScriptedEngine
from scripted_app import listening, question

from unifiedserve.cli import top as top_module
from unifiedserve.cli.app import main

KEY = "sk-secret-0123456789"


class Command:
    """The command in this process, whose imports are done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    async def run(self, *arguments: str) -> tuple[object, str, str]:
        """Return the exit code, and what was printed, out and as errors."""
        self._monkeypatch.setattr(sys, "argv", ["unifiedserve", "top", *arguments])

        def call() -> object:
            with pytest.raises(SystemExit) as ended:
                main()
            return ended.value.code

        code = await asyncio.to_thread(call)
        return code, *self._capsys.readouterr()

    async def line(self, *arguments: str) -> str:
        """Return the line with which it fails."""
        code, out, error = await self.run(*arguments)
        assert (code, out) == (2, "")
        (line,) = error.splitlines()
        return line


@pytest.fixture
def top(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(top_module, "_SILENCE", 300.0)  # the server is on this busy machine
    for name in ("UNIFIEDSERVE_API_KEY", "UNIFIEDSERVE_API_KEYS"):
        monkeypatch.delenv(name, raising=False)
    return Command(monkeypatch, capsys)


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
async def url(engine: ScriptedEngine) -> AsyncIterator[str]:
    async with listening(engine) as url:
        yield url


@pytest.mark.parametrize("suffix", ["", "/", "/v1"])
async def test_once_prints_and_ends(top: Command, url: str, engine: ScriptedEngine, suffix: str) -> None:
    engine.metrics.request_arrived()
    engine.metrics.first_token(0.3)
    code, out, error = await top.run("--once", "--url", url + suffix)
    assert (code, error) == (0, "")
    for pattern in (
        r"^decode +0 +2$",
        r"^kv .* 25% +2 +4 +12$",
        r"^first token +p50 375\.0 ms",
        r"^workers +all alive",
    ):
        assert any(re.search(pattern, line.rstrip()) for line in out.splitlines()), pattern


async def test_a_pipe_gets_one_look(top: Command, url: str) -> None:
    code, out, _ = await top.run("--url", url)
    assert (code, out.count("workers ")) == (0, 1)


async def test_what_is_wrong_is_in_the_daemons_own_words(top: Command, url: str, engine: ScriptedEngine) -> None:
    engine.healthy = False
    _, out, _ = await top.run("--once", "--url", url)
    assert re.search(r"^workers +a worker is down", out, re.MULTILINE)
    assert re.search(r"^new requests +a worker ended and is being replaced", out, re.MULTILINE)


async def test_a_key_is_asked_for_and_taken_from_the_environment(
    top: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    path.write_text(f"anne {KEY}\n")
    async with listening(ScriptedEngine(api_key_file=str(path))) as url:
        assert "UNIFIEDSERVE_API_KEY" in await top.line("--once", "--url", url)
        monkeypatch.setenv("UNIFIEDSERVE_API_KEY", KEY)
        code, out, _ = await top.run("--once", "--url", url)
    assert code == 0
    assert "all alive" in out
    assert KEY not in out


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1", ["http://127.0.0.1:1", "cannot be reached"]),
        ("http://", ["--url", "http://"]),
        ("ftp://example.com", ["--url", "http://"]),
        ("http://127.0.0.1:99999", ["--url", "99999"]),
    ],
)
async def test_where_nothing_is(top: Command, url: str, words: list[str]) -> None:
    line = await top.line("--once", "--url", url)
    assert all(word in line for word in words)


async def test_a_server_of_something_else(top: Command, url: str) -> None:
    line = await top.line("--once", "--url", f"{url}/elsewhere")
    assert f"{url}/elsewhere" in line
    assert "404" in line


async def test_looking_leaves_the_server_as_it_was(top: Command, url: str, engine: ScriptedEngine) -> None:
    await top.run("--once", "--url", url)
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.post("/v1/chat/completions", json=question())).status_code == 200
    assert len(engine.requests) == 1
