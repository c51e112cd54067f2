"""Ask a server of ours: when tokens came, and what its timeline says of them."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from unifiedserve.profiling.spans import Span, spans_of

FRAME_PIXELS = 50_176


class RefusedError(Exception):
    """Signal that the server does not take such a request. The message is its own."""


class Work(NamedTuple):
    """Describe a question.

    It has tokens of its text and its answer, and an image or a video of which `frames` are sampled.
    """

    text: int
    generate: int
    medium: Path | None = None
    frames: int = 0
    pixels: int = FRAME_PIXELS


@dataclass
class Asked:
    """Hold an answer's times on the monotonic clock, in seconds."""

    sent: float = field(default_factory=time.monotonic)
    tokens: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    id: str = ""

    @property
    def ttft(self) -> float:
        """Return seconds to the first token."""
        return self.tokens[0] - self.sent


class Asker:
    """Ask a server questions with texts of some length. `answered` is called after each."""

    def __init__(
        self, http: httpx.AsyncClient, text: Callable[[int], str], answered: Callable[[], object] = lambda: None
    ) -> None:
        self._http = http
        self._text = text
        self._answered = answered
        self._served: dict[str, Any] = {}

    async def ask(self, work: Work) -> Asked:
        """Ask for exactly so many tokens, the likeliest ones. Raises RefusedError."""
        body: dict[str, Any] = {
            "model": (await self._model())["id"],
            "messages": [{"role": "user", "content": self._content(work)}],
            "max_tokens": work.generate,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if work.medium:
            body["mm_processor_kwargs"] = {"max_pixels": work.pixels}
        if work.frames:
            body["media_io_kwargs"] = {"video": {"num_frames": work.frames}}
        asked = Asked()
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.is_error:
                raise RefusedError((await response.aread()).decode())
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    _read(asked, json.loads(line.removeprefix("data: ")))
        self._answered()
        return asked

    async def first_taken(self, works: Sequence[Work]) -> Work | None:
        """Ask one question after another until one is taken; return it, None if none is."""
        for work in works:
            try:
                await self.ask(work)
            except RefusedError:
                continue
            return work
        return None

    async def spans(self, asked: Asked | None = None) -> list[Span]:
        """Return the server's spans for a request, or of late for all, by time."""
        wanted = {"request_id": asked.id} if asked else {}
        return spans_of((await self._http.get("/debug/trace", params=wanted)).json())

    async def context(self) -> int:
        """Return the longest prompt and answer that the model takes, in tokens."""
        return int((await self._model())["max_model_len"])

    async def gauge(self, name: str) -> float:
        """Return a metric of the server, with its labels if it has any."""
        lines = (await self._http.get("/metrics")).text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"unifiedserve:{name} "))

    async def _model(self) -> dict[str, Any]:
        self._served = self._served or (await self._http.get("/v1/models")).json()["data"][0]
        return self._served

    def _content(self, work: Work) -> list[dict[str, Any]]:
        text = {"type": "text", "text": self._text(work.text)}
        if work.medium is None:
            return [text]
        kind = "video_url" if work.frames else "image_url"
        return [{"type": kind, kind: {"url": work.medium.as_uri()}}, text]


def _read(asked: Asked, chunk: dict[str, Any]) -> None:
    if "error" in chunk:
        raise RefusedError(str(chunk["error"].get("message", chunk["error"])))
    asked.id = chunk["id"]
    for choice in chunk["choices"]:
        asked.tokens += [time.monotonic()] * len(choice.get("token_ids") or ())
    if chunk.get("usage"):
        asked.prompt_tokens = chunk["usage"]["prompt_tokens"]
