"""Rename fields of requests that become a chat request.

Errors, and what is told of media, name the fields that the client wrote.
"""

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import NamedTuple

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.messages.api import Delta

_PART = re.compile(r"(messages\[\d+\])(\.content\[\d+\])?")


class Names(NamedTuple):
    """Map a chat request's fields to the client's names.

    `fields` has them by how the chat's names begin, `places` those of messages and their parts; `conversation` is the
    field for all other messages.
    """

    fields: Mapping[str, str]
    places: Mapping[str, str]
    conversation: str

    def of(self, param: str) -> str:
        """Return the client's name of a field of the chat request."""
        if found := _PART.match(param):
            return self.places.get(found[0]) or self.places.get(found[1], self.conversation)
        return next((name for field, name in self.fields.items() if param.startswith(field)), param)


@contextmanager
def naming(names: Names) -> Iterator[None]:
    """Have errors name the client's fields in place of those of the chat request."""
    try:
        yield
    except RequestError as error:
        if error.param is not None:
            param, error.param = error.param, names.of(error.param)
            error.message = error.message.replace(f"`{param}`", f"`{error.param}`")
        raise


async def naming_in(deltas: AsyncGenerator[Delta, None], names: Names) -> AsyncGenerator[Delta, None]:
    """Yield an answer, which names the client's fields."""
    with naming(names):
        async with aclosing(deltas):
            async for delta in deltas:
                if delta.media:
                    delta.media = [msgspec.structs.replace(each, param=names.of(each.param)) for each in delta.media]
                yield delta
