"""Resolve items of a request that stand for others: for those of stored responses, by their ids."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.access.caller import Caller
from unifiedserve.server.requests.base import Strict
from unifiedserve.server.requests.parse import convert, shortened
from unifiedserve.server.requests.prompts import unless_few
from unifiedserve.server.responses.bounds import check_bytes
from unifiedserve.server.responses.exchange import Exchange, Items
from unifiedserve.server.responses.ids import response_of
from unifiedserve.server.responses.store import ResponseStore


class ItemReference(Strict, tag_field="type", tag="item_reference"):
    """Refer to an item of a stored response, by its id."""

    id: str


async def resolved(items: Items, store: ResponseStore, caller: Caller, most_bytes: int) -> Items:
    """Return a request's items, with stored items in place of the references to them.

    Raises RequestError: 400 for malformed references, 404 if there is no such item for this caller, 413 if what they
    refer to takes more than `most_bytes`.
    """
    ids = await unless_few(len(items), lambda: _referred(items))
    if not ids:
        return items
    exchanges = _exchanges(ids, store, caller)
    return await asyncio.to_thread(_replaced, items, ids, exchanges, most_bytes)


def _referred(items: Items) -> dict[int, str]:
    """Return the ids that references have, by their places among the items."""
    return {place: _reference(place, item).id for place, item in enumerate(items) if _is_reference(item)}


def _is_reference(item: dict[str, Any]) -> bool:
    """Tell whether an item is a reference, whose type may be missing."""
    type = item.get("type")
    return type == "item_reference" or (type is None and "id" in item and item.keys() <= {"id", "type"})


def _reference(place: int, item: dict[str, Any]) -> ItemReference:
    reference: ItemReference = convert({**item, "type": "item_reference"}, ItemReference, f"input[{place}]")
    return reference


def _exchanges(ids: Mapping[int, str], store: ResponseStore, caller: Caller) -> Iterable[Exchange]:
    """Return the exchanges that have these items, each once."""
    found: dict[str, Exchange] = {}
    for place, id in ids.items():
        response = response_of(id)
        if response is None:
            raise _missing(place, id, "Send the item itself.")
        if response not in found:
            try:
                found[response] = store.answered(response, caller)
            except RequestError as error:
                raise _missing(place, id, error.message) from None
    return found.values()


def _replaced(items: Items, ids: Mapping[int, str], exchanges: Iterable[Exchange], most_bytes: int) -> Items:
    stored = {id: item for exchange in exchanges for id, item in exchange.output().items()}
    size = 0
    for place, id in ids.items():
        if id not in stored:
            raise _missing(place, id, f"The response `{response_of(id)}` has no such item: send the item itself.")
        size += len(stored[id])
        check_bytes(size, most_bytes, f"input[{place}]")
    referred = {id: msgspec.json.decode(stored[id]) for id in set(ids.values())}
    return [referred[ids[place]] if place in ids else item for place, item in enumerate(items)]


def _missing(place: int, id: str, why: str) -> RequestError:
    return RequestError(
        f"`input[{place}]` refers to the item `{shortened(id)}`, which is not stored. {why}",
        ErrorKind.NOT_FOUND,
        param=f"input[{place}]",
        code="item_not_found",
    )
