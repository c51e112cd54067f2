"""Make ids of responses and of their items. The id of a stored response's item tells which response has it."""

import re
import uuid

_RESPONSE = re.compile(r"resp_[0-9a-f]{32}")
_ITEM = re.compile(r"[a-z]+_(?P<stem>[0-9a-f]{32})_[0-9]+")


def new_response_id() -> str:
    """Return the id of a response that will be stored."""
    return f"resp_{new_stem()}"


def is_stored_id(text: str) -> bool:
    """Tell whether a text looks as the ids of stored responses do."""
    return _RESPONSE.fullmatch(text) is not None


def new_stem() -> str:
    """Return what the ids of a response's items share."""
    return uuid.uuid4().hex


def resumable_stem(response_id: str) -> str:
    """Return a stem that is the same at every server. The response may go on at another one."""
    return uuid.uuid5(uuid.NAMESPACE_URL, response_id).hex


def call_id(item_id: str, like: str) -> str:
    """Return the id of an item's call in the form of another: the same at every server, as the item's."""
    prefix = "call_" if like.startswith("call_") else ""
    return prefix + uuid.uuid5(uuid.NAMESPACE_URL, item_id).hex[: len(like) - len(prefix)]


def stem_of(response_id: str) -> str:
    """Return what the ids of a stored response's items share."""
    return response_id.removeprefix("resp_")


def response_of(item_id: str) -> str | None:
    """Return the id of the stored response that has an item; None for what is no item's id."""
    item = _ITEM.fullmatch(item_id)
    return f"resp_{item['stem']}" if item else None
