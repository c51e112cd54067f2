"""Clients of a cluster that ask for streams, and see how long these pause."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx

CHAT = "/v1/chat/completions"
QUESTIONS = ["What can you see?", "Which shapes are there?", "Where is the red circle?", "How many are there?"]
PATIENCE = 60.0  # seconds for a piece of an answer


class Answer(NamedTuple):
    """Hold what a client had of an answer: its text, its longest pause in seconds, and how often it was asked for."""

    text: str
    pause: float
    asked: int


class Stream:
    """Ask one question. `begun` is set once some of the answer has come, and at its end."""

    def __init__(self, http: httpx.AsyncClient, question: str, tokens: int, after: int = 0) -> None:
        """Ask for an answer of so many tokens, which has begun `after` some of them."""
        self._http = http
        self._body = {
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        self._after = after
        self._last: float | None = None  # when a piece came; before the first one it waits for its turn
        self._pause = 0.0
        self.begun = asyncio.Event()

    async def answer(self, routers: Sequence[str]) -> Answer:
        """Return the answer, of the first router that lives to its end. Raises HTTPError or ValueError without one."""
        try:
            for number, url in enumerate(routers, 1):
                try:
                    return Answer(await self._read(url), self._pause, number)
                except (httpx.NetworkError, httpx.RemoteProtocolError):
                    if number == len(routers):
                        raise
            raise ValueError("there is no router")
        finally:
            self.begun.set()

    async def _read(self, url: str) -> str:
        pieces = list[str]()
        async with self._http.stream("POST", url + CHAT, json=self._body) as response:
            if response.is_error:
                await response.aread()
                raise ValueError(f"{response.status_code}: {response.text[:200]}")
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    return "".join(pieces)
                if line.startswith("data: "):
                    pieces.append(_piece(json.loads(line[6:])))
                    self._came(len(pieces))
        raise ValueError("the stream ended early")

    def _came(self, pieces: int) -> None:
        now = time.monotonic()
        self._pause = max(self._pause, now - (self._last or now))
        self._last = now
        if pieces > self._after:
            self.begun.set()


def _piece(event: dict[str, Any]) -> str:
    if "error" in event:
        raise ValueError(event["error"]["message"])
    choices = event.get("choices") or [{}]
    return str((choices[0].get("delta") or {}).get("content") or "")
