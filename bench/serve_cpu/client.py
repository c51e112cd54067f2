"""One request to an OpenAI chat endpoint, streamed, with the arrival of every token."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

SHOWN = 200  # characters shown of a message
TIMEOUT = httpx.Timeout(600.0)  # seconds, between two chunks, too


@dataclass
class Answer:
    """An answer's times on the monotonic clock, in seconds; tokens that came together share one.

    All counts from `start`, when the request was due; `sent` is when it went off.
    """

    start: float = field(default_factory=time.monotonic)
    sent: float = 0.0
    id: str = ""
    arrivals: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    text: str = ""

    @property
    def ttft(self) -> float:
        return self.arrivals[0] - self.start

    @property
    def end(self) -> float:
        return self.arrivals[-1]


class RequestError(Exception):
    """An error that the server answered with, or an answer that is not as asked for."""


class Client:
    """A server's chat endpoint."""

    def __init__(self, http: httpx.AsyncClient, model: str, more: Mapping[str, Any] | None = None) -> None:
        """Take fields that each request has `more` of."""
        self._http = http
        self._model = model
        self._more = more or {}

    async def ask(
        self,
        content: str | list[dict[str, Any]],
        tokens: int,
        answer: Answer | None = None,
        **options: Any,
    ) -> Answer:
        """Ask for exactly `tokens` tokens, the likeliest ones, and return the complete answer.

        A given `answer` is filled as they come. Raises RequestError.
        """
        answer = answer or Answer()
        answer.sent = time.monotonic()
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            **self._more,
            "stream": True,
            "stream_options": {"include_usage": True},
            **options,
        }
        async for now, chunk in self._chunks(body):
            answer.id = chunk["id"]
            answer.arrivals += [now] * _new_tokens(chunk, answer)
            for choice in chunk["choices"]:
                answer.text += choice["delta"].get("content") or ""
            if chunk.get("usage"):
                answer.prompt_tokens = chunk["usage"]["prompt_tokens"]
        if len(answer.arrivals) != tokens:
            raise RequestError(f"asked for {tokens} tokens, got {len(answer.arrivals)}")
        return answer

    async def trace(self, request: str) -> list[dict[str, Any]]:
        """Return the events of a request's trace (Trace Event Format), none if the server has no such thing."""
        response = await self._http.get("/debug/trace", params={"request_id": request})
        if response.status_code == httpx.codes.NOT_FOUND:
            return []
        events: list[dict[str, Any]] = response.raise_for_status().json()["traceEvents"]
        return events

    async def _chunks(self, body: dict[str, Any]) -> AsyncIterator[tuple[float, dict[str, Any]]]:
        """Yield the events with the time of the read that brought them."""
        async with self._http.stream("POST", "/v1/chat/completions", json=body, timeout=TIMEOUT) as response:
            if response.status_code != httpx.codes.OK:
                raise RequestError(f"status {response.status_code}: {shortened((await response.aread()).decode())}")
            rest = b""
            async for read in response.aiter_raw():
                now = time.monotonic()
                *events, rest = (rest + read).split(b"\n\n")
                for event in events:
                    if event.startswith(b":"):  # a comment, which keeps the connection alive
                        continue
                    data = event.removeprefix(b"data: ")
                    if data == b"[DONE]":
                        return
                    chunk: dict[str, Any] = json.loads(data)
                    if "error" in chunk:
                        raise RequestError(str(chunk["error"]))
                    yield now, chunk


def _new_tokens(chunk: Mapping[str, Any], answer: Answer) -> int:
    """Return how many tokens a chunk brings: by their ids, or where a server tells none by its count of all."""
    if timings := chunk.get("timings"):
        return int(timings["predicted_n"]) - len(answer.arrivals)
    return sum(len(choice.get("token_ids") or ()) for choice in chunk["choices"])


def shortened(text: str) -> str:
    """Return the beginning and the end of a message."""
    return text if len(text) <= 2 * SHOWN else f"{text[:SHOWN]} ... {text[-SHOWN:]}"
