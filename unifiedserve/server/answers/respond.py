"""Turn a reply into an HTTP response: whole, or in chunks as it grows."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.messages.api import Delta
from unifiedserve.server.answers.deltas import HeldDeltas
from unifiedserve.server.answers.event_stream import EventStream, ending, event, named_event
from unifiedserve.server.answers.marks import mark, wants_marks
from unifiedserve.server.answers.reply import GrowingReply, NamedReply, WholeReply
from unifiedserve.server.answers.tally import Usage
from unifiedserve.server.disconnect import unless_disconnected
from unifiedserve.server.error_bodies import error_body
from unifiedserve.server.requests.generation import GenerationOptions, StreamOptions

_DONE = b"data: [DONE]\n\n"

_Take = Callable[[Delta], Awaitable[Iterable[bytes]]]


async def respond(
    request: Request, asked: GenerationOptions, id: str, deltas: AsyncGenerator[Delta, None], reply: GrowingReply
) -> Response:
    """Return the reply as it was asked for: whole, or as a stream of chunks."""
    if not asked.stream:
        return await respond_whole(request, id, deltas, reply)
    options = asked.stream_options or StreamOptions()
    resumes, marked = asked.resume is not None, wants_marks(request)
    return await respond_in_events(
        request, id, deltas, lambda held: _chunk_events(held, reply, options, resumes=resumes, marked=marked)
    )


async def respond_named(
    request: Request,
    id: str,
    deltas: AsyncGenerator[Delta, None],
    reply: NamedReply,
    *,
    stream: bool,
    resumes: bool,
) -> Response:
    """Return the reply whole, or as a stream of events that tell their types; its reader has what it `resumes`."""
    if not stream:
        return await respond_whole(request, id, deltas, reply)
    marked = wants_marks(request)
    return await respond_in_events(
        request, id, deltas, lambda held: _named_events(held, reply, resumes=resumes, marked=marked)
    )


async def respond_whole(request: Request, id: str, deltas: AsyncGenerator[Delta, None], reply: WholeReply) -> Response:
    """Return the whole reply; raise ClientGoneError if nobody waits for it any more."""
    held = HeldDeltas(deltas)
    try:
        completion = await unless_disconnected(request.receive, _complete(held, reply))
    except BaseException:
        await held.aclose()
        raise
    return Response(msgspec.json.encode(completion), 200, _headers(id), "application/json")


async def respond_in_events(
    request: Request,
    id: str,
    deltas: AsyncGenerator[Delta, None],
    events: Callable[[HeldDeltas], AsyncIterator[bytes]],
) -> Response:
    """Return a stream of events. It begins after the first delta, so that bad requests get their 4xx."""
    held = HeldDeltas(deltas)
    try:
        await unless_disconnected(request.receive, held.start())
    except BaseException:
        await held.aclose()
        raise
    return EventStream(events(held), held, _headers(id))


def _chunk_events(
    held: HeldDeltas, reply: GrowingReply, options: StreamOptions, *, resumes: bool, marked: bool
) -> AsyncIterator[bytes]:
    """Return the events of a reply: its opening, then text and ends as they come, usage if asked for, [DONE]."""

    def chunk(choice: Any) -> bytes:
        return event(reply.chunk(choice, usage=tokens_so_far() if options.continuous_usage_stats else None))

    def tokens_so_far() -> Usage:
        return msgspec.structs.replace(reply.usage(), media=msgspec.UNSET)  # once is enough

    async def take(delta: Delta) -> Iterable[bytes]:
        return map(chunk, await _taken(reply, delta))

    async def events() -> AsyncIterator[bytes]:
        async for sent in _growing(held, map(chunk, reply.opening()), take, resumes=resumes, marked=marked):
            yield sent
        if options.include_usage:
            yield event(reply.chunk(usage=reply.usage()))
        yield _DONE

    return ending(events(), lambda error: event(error_body(error)))


def _named_events(held: HeldDeltas, reply: NamedReply, *, resumes: bool, marked: bool) -> AsyncIterator[bytes]:
    async def take(delta: Delta) -> Iterable[bytes]:
        return map(named_event, reply.take(delta))

    events = _growing(held, map(named_event, reply.begin()), take, resumes=resumes, marked=marked)
    return ending(events, lambda error: named_event(reply.failure(error)))


async def _growing(
    held: HeldDeltas, opening: Iterable[bytes], take: _Take, *, resumes: bool, marked: bool
) -> AsyncIterator[bytes]:
    """Yield the opening's events and those of each delta.

    Those that the reader of a resumed answer has are left out.
    """
    begin = b"".join(opening)
    if not resumes and (begin or marked):
        yield begin + mark() if marked else begin
    async for delta in held:
        events = b"".join(await take(delta))
        if not delta.resumed and (events or marked):
            yield events + mark(delta) if marked else events


async def _taken(reply: WholeReply, delta: Delta) -> Sequence[Any]:
    """Return what a delta adds to a reply; decode the many tokens of a whole prompt beside the event loop."""
    return reply.take(delta) if delta.prompt_logprobs is None else await asyncio.to_thread(reply.take, delta)


async def _complete(held: HeldDeltas, reply: WholeReply) -> msgspec.Struct:
    async for delta in held:
        reply.keep(await _taken(reply, delta))
    return reply.completion()


def _headers(id: str) -> dict[str, str]:
    return {"X-Request-Id": id}
