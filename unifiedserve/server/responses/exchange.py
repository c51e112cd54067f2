"""Keep a request's own items and the response to them, as JSON. Stored conversations consist of these."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from unifiedserve.server.requests.json_size import JsonSize, json_size
from unifiedserve.server.responses.objects import ResponseObject

Items = list[dict[str, Any]]


class Exchange(msgspec.Struct):
    """Hold one request of a conversation.

    `previous` is the id of the response before it, `parts` count its items' JSON.
    """

    previous: str | None
    input: bytes
    parts: JsonSize
    response: bytes | None = None

    @property
    def size(self) -> int:
        """Return the bytes that it takes."""
        return len(self.input) + len(self.response or b"")

    def output(self) -> dict[str, msgspec.Raw]:
        """Return the items of the response as JSON, by their ids."""
        found = msgspec.json.decode(self.response or b"", type=_RawOutput).output
        return {msgspec.json.decode(item, type=_Identified).id: item for item in found}

    def answer(self, response: ResponseObject) -> None:
        """Take the response."""
        self.response = msgspec.json.encode(response)
        self.parts = total([self.parts, json_size(msgspec.json.encode(response.output))])


class _Output(msgspec.Struct):
    output: Items


class _RawOutput(msgspec.Struct):
    output: list[msgspec.Raw]


class _Identified(msgspec.Struct):
    id: str


def own_items(input: str | Items) -> Items:
    """Return the items of a request's input."""
    return [{"role": "user", "content": input}] if isinstance(input, str) else input


def items(exchanges: Iterable[Exchange]) -> Items:
    """Return all items of exchanges that were answered, as a client would send them."""
    found: Items = []
    for exchange in exchanges:
        found += msgspec.json.decode(exchange.input)
        found += msgspec.json.decode(exchange.response or b"", type=_Output).output
    return found


def total(parts: Sequence[JsonSize]) -> JsonSize:
    """Return the parts of several pieces of JSON together."""
    return JsonSize(*(sum(counts) for counts in zip(*parts, strict=True)))
