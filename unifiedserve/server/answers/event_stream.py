"""Send server-sent events, by the HTTP response that carries them."""

import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from unifiedserve.errors import RequestError
from unifiedserve.server.disconnect import ClientGoneError, unless_disconnected
from unifiedserve.server.errors import streaming_error

_log = logging.getLogger(__name__)


def event(data: msgspec.Struct | dict[str, Any]) -> bytes:
    """Return an event that holds `data` as JSON."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def named_event(data: dict[str, Any]) -> bytes:
    """Return an event whose name is the `type` in its data."""
    return f"event: {data['type']}\n".encode() + event(data)


async def ending(events: AsyncIterator[bytes], failure: Callable[[RequestError], bytes]) -> AsyncIterator[bytes]:
    """Yield the events, and an error as the last of them: the response's status is out by now."""
    try:
        async for data in events:
            yield data
    except Exception as error:
        yield failure(streaming_error(error))


class Source(Protocol):
    """Define what events are made from."""

    async def aclose(self) -> None: ...


class EventStream(Response):
    """Send events until they end or the client goes away. Either way their `source` is closed."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterable[bytes], source: Source, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._events = events
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_disconnected(receive, self._send(send, headers_only=scope["method"] == "HEAD"))
        except (ClientGoneError, OSError):
            _log.info("client left a stream")
        finally:
            await self._source.aclose()

    async def _send(self, send: Send, *, headers_only: bool) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if not headers_only:
            async for data in self._events:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
