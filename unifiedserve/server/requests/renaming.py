"""Requests that become a chat request: errors, and what is told of media, name the fields that the client wrote."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.messages.api import Delta

Rename = Callable[[str], str]


@contextmanager
def naming(rename: Rename) -> Iterator[None]:
    """Have errors name the client's fields in place of those of the chat request."""
    try:
        yield
    except RequestError as error:
        if error.param is not None:
            error.param = rename(error.param)
        raise


async def naming_in(deltas: AsyncGenerator[Delta, None], rename: Rename) -> AsyncGenerator[Delta, None]:
    """Yield an answer, which names the client's fields."""
    with naming(rename):
        async with aclosing(deltas):
            async for delta in deltas:
                if delta.media:
                    delta.media = [msgspec.structs.replace(each, param=rename(each.param)) for each in delta.media]
                yield delta
