"""Ask one node to encode some of a prompt's media, and tell where units are."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path

import httpx
import msgspec

from unifiedserve.config import key_header
from unifiedserve.engine.encoding.shares import sources_of
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.errors import NO_JSON, ErrorKind, RequestError
from unifiedserve.messages.encoding import (
    KEY_HEADER,
    PATH,
    EncodedUnit,
    EncodeFailure,
    EncodeRequest,
    Features,
    pack_head,
    read_line,
)
from unifiedserve.messages.media import Source
from unifiedserve.messages.wire import MediaSource
from unifiedserve.reading.work import opened

_CONNECT_SECONDS = 5.0
_SILENCE_SECONDS = 15.0  # a node that encodes shows that it lives far more often
_PIECE_BYTES = 1 << 20  # a node that reads takes one in less than that
#: failures that are a request's own: no other node would do better
_LASTING = (ErrorKind.INVALID, ErrorKind.HARMFUL, ErrorKind.TOO_LARGE)


class NodeError(Exception):
    """Signal a node that does not encode what it was asked for. It is one line, because another node may."""


class Asking:
    """Reach the nodes that encode. Belongs to an event loop."""

    def __init__(self, features: Features, key: str) -> None:
        """Ask for visual tokens with these features, with the cluster's key."""
        self._features = features
        self._headers = {KEY_HEADER: key, "Content-Type": "application/octet-stream", **key_header()}
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
        )

    async def close(self) -> None:
        """Break off all connections."""
        await self._http.aclose()

    async def units(self, url: str, active: ActiveRequest, wanted: Sequence[int]) -> AsyncGenerator[EncodedUnit, None]:
        """Yield the wanted units of a request. The node at this URL holds them until the generator is closed.

        Raises NodeError, and RequestError for what no node can encode.
        """
        sources = [
            msgspec.structs.replace(active.sources[number], units=units)
            for number, units in sources_of(active.sources, wanted).items()
        ]
        try:
            sizes = await asyncio.to_thread(lambda: [_size(source.where) for source in sources])
            head = self._head(active, sources, sizes)
            body = _body(head, sources)
            length = str(len(head) + sum(sizes))
            headers = {**active.callers_trace, **self._headers, "Content-Length": length}
            async with self._http.stream("POST", url + PATH, content=body, headers=headers) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise NodeError(f"{url} answers {answer.status_code}: {_reason(await answer.aread())}")
                async for line in answer.aiter_lines():
                    if line:
                        yield _taken(url, read_line(line))
        except (httpx.HTTPError, *NO_JSON, OSError) as error:
            raise NodeError(f"{url}: {str(error) or type(error).__name__}") from error
        raise NodeError(f"{url} broke off")

    def _head(self, active: ActiveRequest, sources: Sequence[MediaSource], sizes: Sequence[int]) -> bytes:
        prompt = active.planned.prompt
        return pack_head(
            EncodeRequest(
                id=active.id,
                features=self._features,
                token_ids=prompt.token_ids,
                media=prompt.media,
                sources=[
                    msgspec.structs.replace(source, where=Source(size=size))
                    for source, size in zip(sources, sizes, strict=True)
                ],
                digests=active.contents.digests if active.contents else [],
                priority=active.planned.request.priority,
                anew=active.stale,
            )
        )


def _taken(url: str, told: EncodedUnit | EncodeFailure) -> EncodedUnit:
    if isinstance(told, EncodedUnit):
        return told
    if told.kind in _LASTING:
        raise RequestError(told.message, told.kind, param=told.param)
    raise NodeError(f"{url}: {told.message}")


def _reason(body: bytes) -> str:
    """Return what an error says, in a line."""
    try:
        return str(msgspec.json.decode(body)["error"]["message"])
    except (*NO_JSON, LookupError, TypeError):
        return body[:200].decode(errors="replace")


def _size(where: Source) -> int:
    return Path(where.path or "").stat().st_size if where.arena is None else where.size


async def _body(head: bytes, sources: Sequence[MediaSource]) -> AsyncIterator[bytes]:
    yield head
    for source in sources:
        found = opened(source.where)
        if isinstance(found, Path):
            with await asyncio.to_thread(found.open, "rb") as file:
                while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
                    yield piece
        else:
            for start in range(0, len(found), _PIECE_BYTES):
                yield bytes(found[start : start + _PIECE_BYTES])
