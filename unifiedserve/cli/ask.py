"""Ask a daemon about a video or an image over HTTP, and watch it work. The view is in the terminal."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from unifiedserve.bench.client.connection import connect, server_at
from unifiedserve.bench.client.delivery import media_type
from unifiedserve.bench.client.endpoint import message_of
from unifiedserve.cli.daemon import daemon
from unifiedserve.cli.live_view import LiveView
from unifiedserve.errors import ConfigError


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a question about a medium. `frames` of a video are looked at (None: as many as the model's rules say)."""

    text: str
    medium: Path
    frames: int | None = None
    max_tokens: int


def run_all(questions: Sequence[Question], *, url: str = "", model: str = "") -> int:
    """Ask one question after another of the daemon at `url`. Without it, a daemon is started for `model`.

    Return the exit code: 0 if all were answered. Raises ConfigError if there is no such file or no daemon, or it
    refuses a request.
    """
    for question in questions:
        if not question.medium.is_file():
            raise ConfigError(f"{question.medium}: no such file")
    console = Console(highlight=False)
    if not url:
        console.print(Text(f"starting a server for {model or 'the bundled model'} …", "dim"))
    with _reached(url, model) as where:
        try:
            answered = [asyncio.run(_ask(where, question, console)) for question in questions]
        except httpx.HTTPError as error:
            raise ConfigError(f"the server at {where} cannot be reached: {error or type(error).__name__}") from error
    return 0 if all(answered) else 1


@contextmanager
def _reached(url: str, model: str) -> Iterator[str]:
    """Yield the URL of the daemon to ask: the one at `url`, or a new one for `model`."""
    if url:
        yield server_at(url)
        return
    with daemon(model) as started:
        yield started.url


async def _ask(url: str, question: Question, console: Console) -> int:
    """Show the answer as it streams, beside the stages' work; return the number of generated tokens."""
    async with connect(url, silence=None) as client:
        console.print(Text.assemble((url, "dim"), "\n", (question.medium.name, "bold"), f": {question.text}"))
        body = _body(question, await _upload(client, question.medium))
        view, viewer = LiveView(), secrets.token_hex(16)
        with Live(view, console=console, refresh_per_second=8):
            connected = asyncio.Event()
            watching = asyncio.create_task(_watch(client, viewer, view, connected))
            await connected.wait()
            try:
                await _answer(client, body, viewer, view)
                trace = await client.get("/debug/trace", params={"request_id": view.request})
                view.finish(trace.json()["traceEvents"] if trace.is_success else [])
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        console.print()
        return view.tokens


async def _upload(client: httpx.AsyncClient, medium: Path) -> str:
    with medium.open("rb") as file:
        response = await client.post("/v1/files", data={"purpose": "vision"}, files={"file": (medium.name, file)})
    _check(response)
    try:
        return str(response.json()["id"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{response.request.url} gave no id of the file: is this a UnifiedServe server?") from None


def _body(question: Question, file: str) -> dict[str, Any]:
    kind = "image_url" if media_type(str(question.medium)).startswith("image/") else "video_url"
    content = [{"type": kind, kind: {"url": file}}, {"type": "text", "text": question.text}]
    body = {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": question.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_media_usage": True,
    }
    if question.frames is not None:
        body["media_io_kwargs"] = {"video": {"num_frames": question.frames}}
    return body


async def _watch(client: httpx.AsyncClient, viewer: str, view: LiveView, connected: asyncio.Event) -> None:
    """Show the live events until cancelled; without them there is still the answer."""
    try:
        async with client.stream("GET", "/v1/events", params={"viewer": viewer}) as response:
            _check(response)
            connected.set()
            async for event in _events(response):
                view.take_event(event)
    except (httpx.HTTPError, ConfigError):
        connected.set()


async def _answer(client: httpx.AsyncClient, body: dict[str, Any], viewer: str, view: LiveView) -> None:
    headers = {"X-Request-Id": view.name, "X-Viewer": viewer}
    async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        if response.is_error:
            await response.aread()
        _check(response)
        async for chunk in _events(response):
            view.take_chunk(chunk)


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield the data of a stream; raises ConfigError for an error among them."""
    async for line in response.aiter_lines():
        data = line.removeprefix("data: ")
        if data and data != "[DONE]":
            try:
                event: dict[str, Any] = json.loads(data)
            except ValueError:
                raise ConfigError(f"{response.request.url}: the stream holds what is no event") from None
            if "error" in event:
                raise ConfigError(message_of(data.encode()))
            yield event


def _check(response: httpx.Response) -> None:
    """Raise ConfigError with the server's own words if the response is an error."""
    if response.is_error:
        try:
            raise ConfigError(response.json()["error"]["message"])
        except (ValueError, KeyError, TypeError, httpx.ResponseNotRead):
            raise ConfigError(f"{response.request.url} answered {response.status_code}") from None
