"""Read the events of a streamed answer, with the times of their reads."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

from unifiedserve.bench.client.clock import Clock
from unifiedserve.errors import NO_JSON

_DATA = b"data:"
_LONGEST = 1 << 22  # bytes of a line; more is no event


class TopToken(msgspec.Struct):
    """Hold a token's text and its log probability."""

    token: str
    logprob: float


class _Entry(msgspec.Struct):
    top_logprobs: list[TopToken] = []


class Logprobs(msgspec.Struct):
    """Hold of each token in a chunk the likeliest ones in its place."""

    content: list[_Entry] | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    function: _Function | None = None


class Delta(msgspec.Struct):
    """Hold what a chunk adds to the answer. The first one has the role alone, or with no text."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None

    @property
    def thoughts(self) -> str:
        """Return what it adds to the model's thoughts, by either of their names."""
        return self.reasoning_content or self.reasoning or ""

    @property
    def length(self) -> int:
        """Return the characters that it adds: of text, thoughts and tool calls."""
        functions = [call.function for call in self.tool_calls or () if call.function]
        told = [text for each in functions for text in (each.name, each.arguments) if isinstance(text, str)]
        return sum(map(len, (self.content or "", self.thoughts, *told)))


class Choice(msgspec.Struct):
    """Hold one answer's part of a chunk."""

    delta: Delta | None = None
    token_ids: list[int] | None = None
    logprobs: Logprobs | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Count tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class Chunk(msgspec.Struct):
    """Hold a streamed chat completion's chunk, or an error in its place: under that name, or by the kind of object."""

    id: str | None = None
    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: Any = None
    message: Any = None

    @property
    def failure(self) -> Any:
        """Return the error; None if it is a chunk."""
        return self.message if self.object == "error" and self.error is None else self.error


class BrokenStreamError(Exception):
    """Signal a stream that ended too early or holds what is no event."""


_decode = msgspec.json.Decoder(Chunk).decode


async def chunks(response: httpx.Response, clock: Clock) -> AsyncIterator[tuple[float, Chunk]]:
    """Yield the chunks of a stream and when each came. Raises BrokenStreamError unless it ends with [DONE]."""
    rest = b""
    async for read in response.aiter_raw():
        now = clock.now()
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            if _is_end(line):
                return
            if line.startswith(_DATA):
                yield now, _chunk(line.removeprefix(_DATA).strip())
        if len(rest) > _LONGEST:
            raise BrokenStreamError("the stream holds what is no event")
    if not _is_end(rest):  # whose line some servers leave open
        raise BrokenStreamError("the stream ended before the answer did")


def _is_end(line: bytes) -> bool:
    return line.startswith(_DATA) and line.removeprefix(_DATA).strip() == b"[DONE]"


def _chunk(data: bytes) -> Chunk:
    try:
        return _decode(data)
    except NO_JSON as error:
        shown = data[:80].decode(errors="replace")
        raise BrokenStreamError(f"the stream holds what is no chunk of an answer: {error}: {shown}") from error
