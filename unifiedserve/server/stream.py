"""Server-sent events: a reply in chunks, and the HTTP response that carries them."""

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from unifiedserve.errors import RequestError
from unifiedserve.messages import Delta
from unifiedserve.server.disconnect import ClientGoneError, unless_disconnected
from unifiedserve.server.errors import error_body, internal_error
from unifiedserve.server.generation import Generation
from unifiedserve.server.protocol import GrowingReply, WholeReply
from unifiedserve.server.responses_reply import ResponsesReply
from unifiedserve.server.schema import StreamOptions

_log = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"


def event(data: msgspec.Struct | dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


async def taken(reply: WholeReply, delta: Delta) -> Sequence[Any]:
    """What a delta adds to a reply. That with a whole prompt has many tokens to decode: beside the event loop."""
    return reply.take(delta) if delta.prompt_logprobs is None else await asyncio.to_thread(reply.take, delta)


def chunk_events(generation: Generation, reply: GrowingReply, options: StreamOptions) -> AsyncIterator[bytes]:
    """Events of a reply: its opening, then text and ends as they come, usage if asked for, [DONE]."""
    return _ending(_chunk_events(generation, reply, options), lambda error: event(error_body(error)))


def response_events(generation: Generation, reply: ResponsesReply) -> AsyncIterator[bytes]:
    """Events of /v1/responses, each by its name."""
    return _ending(_response_events(generation, reply), lambda error: _named(reply.failure(error)))


async def _ending(events: AsyncIterator[bytes], failure: Callable[[RequestError], bytes]) -> AsyncIterator[bytes]:
    """The response's status is out by now, so an error becomes the last event."""
    try:
        async for data in events:
            yield data
    except RequestError as error:
        yield failure(error)
    except Exception:
        _log.exception("request failed while streaming")
        yield failure(internal_error())


async def _response_events(generation: Generation, reply: ResponsesReply) -> AsyncIterator[bytes]:
    for each in reply.begin():
        yield _named(each)
    async for delta in generation:
        for each in reply.take(delta):
            yield _named(each)


def _named(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\n".encode() + event(data)


async def _chunk_events(generation: Generation, reply: GrowingReply, options: StreamOptions) -> AsyncIterator[bytes]:
    def chunk(choice: Any) -> bytes:
        return event(reply.chunk(choice, usage=reply.usage() if options.continuous_usage_stats else None))

    for choice in reply.opening():
        yield chunk(choice)
    async for delta in generation:
        for choice in await taken(reply, delta):
            yield chunk(choice)
    if options.include_usage:
        yield event(reply.chunk(usage=reply.usage()))
    yield DONE


class Source(Protocol):
    """What events are made from."""

    async def aclose(self) -> None: ...


class EventStream(Response):
    """Sends events until they end or the client goes away; either way their `source` is closed."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterable[bytes], source: Source, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._events = events
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_disconnected(receive, self._send(send))
        except (ClientGoneError, OSError):
            _log.info("client left a stream")
        finally:
            await self._source.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for data in self._events:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
