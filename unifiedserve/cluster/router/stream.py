"""A node's stream of events as a router reads it: in pieces that end with a mark."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from unifiedserve.server.answers.marks import read_mark

_END = b"\n\n"


class Piece(NamedTuple):
    """Events, and the number and tokens of the answer that they belong to; None of an opening, and of an end."""

    events: bytes
    token_ids: tuple[int, list[int]] | None = None
    is_marked: bool = True


async def pieces(chunks: AsyncIterator[bytes]) -> AsyncIterator[Piece]:
    """Yield the pieces of a stream. What comes behind the last mark is one more, when the stream has ended well."""
    text, events = b"", b""
    async for chunk in chunks:
        text += chunk
        while (end := text.find(_END)) >= 0:
            block, text = text[: end + len(_END)], text[end + len(_END) :]
            if block.startswith(b":"):
                yield Piece(events, read_mark(block))
                events = b""
            else:
                events += block
    if events or text:
        yield Piece(events + text, is_marked=False)
