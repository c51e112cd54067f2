"""Requests to a daemon of ours: when their tokens came, and what its trace says of them."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from serve_cpu.prompts import Prompts

UNIT_FRAMES = 2  # frames of a video that make an encode unit
AROUND = 2  # tokens around a medium's
FRAME_PIXELS = 50_176


class Work(NamedTuple):
    """A question: tokens of its text, tokens of its answer, and an image or a video of which `frames` are sampled."""

    text: int
    generate: int
    medium: Path | None = None
    frames: int = 0
    pixels: int = FRAME_PIXELS

    @property
    def units(self) -> int:
        return self.frames // UNIT_FRAMES or int(self.medium is not None)


@dataclass
class Asked:
    """An answer's times on the monotonic clock, in seconds."""

    sent: float = field(default_factory=time.monotonic)
    tokens: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    id: str = ""

    @property
    def ttft(self) -> float:
        return self.tokens[0] - self.sent


class Span(NamedTuple):
    """A piece of work of the daemon's trace: seconds since its start."""

    stage: str
    name: str
    start: float
    end: float
    requests: int
    tokens: int

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Asker:
    """A daemon, and questions of exact lengths. `answered` is called after each."""

    def __init__(
        self, http: httpx.AsyncClient, prompts: Prompts, answered: Callable[[], object] = lambda: None
    ) -> None:
        self._http = http
        self._prompts = prompts
        self._answered = answered
        self._model = ""

    async def ask(self, work: Work) -> Asked:
        """Ask for exactly so many tokens, the likeliest ones."""
        body: dict[str, Any] = {
            "model": await self._name(),
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
                raise RuntimeError((await response.aread()).decode())
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    _read(asked, json.loads(line.removeprefix("data: ")))
        self._answered()
        return asked

    async def spans(self, asked: Asked | None = None) -> list[Span]:
        """Return what the daemon did for a request, or of late for all, by the time."""
        wanted = {"request_id": asked.id} if asked else {}
        events = (await self._http.get("/debug/trace", params=wanted)).json()["traceEvents"]
        spans = [
            Span(
                e["cat"],
                e["name"],
                e["ts"] / 1e6,
                (e["ts"] + e["dur"]) / 1e6,
                len(e["args"]["requests"]),
                e["args"].get("tokens", 0),
            )
            for e in events
            if e["ph"] == "X"
        ]
        return sorted(spans, key=lambda span: span.start)

    async def _name(self) -> str:
        self._model = self._model or (await self._http.get("/v1/models")).json()["data"][0]["id"]
        return self._model

    async def gauge(self, name: str) -> float:
        """Return a metric of the daemon, with its labels if it has any."""
        lines = (await self._http.get("/metrics")).text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"unifiedserve:{name} "))

    def _content(self, work: Work) -> list[dict[str, Any]]:
        text = {"type": "text", "text": self._prompts.text(work.text)}
        if work.medium is None:
            return [text]
        kind = "video_url" if work.frames else "image_url"
        return [{"type": kind, kind: {"url": work.medium.as_uri()}}, text]


def visual_tokens(work: Work, asked: Asked) -> int:
    """Return the visual tokens of each unit of a question."""
    return (asked.prompt_tokens - work.text - AROUND) // work.units


def _read(asked: Asked, chunk: dict[str, Any]) -> None:
    asked.id = chunk["id"]
    for choice in chunk["choices"]:
        asked.tokens += [time.monotonic()] * len(choice.get("token_ids") or ())
    if chunk.get("usage"):
        asked.prompt_tokens = chunk["usage"]["prompt_tokens"]
