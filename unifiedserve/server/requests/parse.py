"""Parse JSON into a request struct. Errors name the field and what to write instead."""

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.requests.allowed import allowed_values, description
from unifiedserve.server.requests.base import ModelRequest
from unifiedserve.server.requests.idle_fields import without_idle_fields
from unifiedserve.server.requests.json_size import JsonSize, json_size

R = TypeVar("R", bound=ModelRequest)

_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<field>.*?)`", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>.*?)`")
_NOT_ALLOWED = re.compile(r"^Invalid (?:enum )?value (?P<value>.*)$", re.DOTALL)
_NO_MATCH = re.compile(r"^Expected `str` matching regex ")
_MOST_OPENED = 100_000  # objects and lists: of messages and their parts, mostly
_MOST_NAMES = 50_000  # of objects; each takes half a microsecond in which nothing else runs
_MOST_COMMAS = 500_000  # between token ids, mostly
_MOST_LEVELS = 128  # objects and lists in each other: what walks them recurses, on stacks of different depths
_SMALL = 4096  # bytes, of which nothing takes long
_LONGEST_NAME = 64  # characters of what a client wrote that errors repeat
_LONGEST_MESSAGE = 4096
_OTHER_NAMES = {"input": "messages", "messages": "input"}  # of a conversation, by endpoint
_LOCATION = re.compile(r" - at `\$\.?(?P<path>.*)`$", re.DOTALL)


def parse(body: bytes | bytearray, struct: type[R], context: int = 0) -> R:
    """Return the request in a body of JSON. It drops fields without effect that clients send along.

    A body may have at least as many token ids as the model's `context` holds.

    Raises RequestError 400 for malformed JSON, for names that come twice in an object, and for fields that are unknown,
    missing or out of range; 413 for a body of too many parts.
    """
    if not body or body.isspace():
        raise RequestError("The body is empty; it must be a JSON object.", code="invalid_json")
    size = json_size(body) if len(body) > _SMALL else None
    if size is not None:
        check_size(size, context)
    try:
        value = msgspec.json.decode(body)
        names = _checked_names(value)
        if size is None or size.names != names:
            json.loads(body, object_pairs_hook=_refuse_repeated)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, ValueError) as error:
        raise RequestError(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestError("The body must be a JSON object.", code="invalid_json")
    converted: R = convert(value, struct)
    return converted


def convert(value: Any, shape: Any, place: str = "") -> Any:
    """Return a struct, or one of a union of them; `place` is where in the request the value is. Raises as `parse`."""
    try:
        try:
            return msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            if not _UNKNOWN.match(str(error)):
                raise
            return msgspec.convert(without_idle_fields(value, shape, place), shape)
    except msgspec.ValidationError as error:
        raise _explain(str(error), value, shape, place) from None


def shortened(text: str) -> str:
    """Return what a client wrote, as errors repeat it."""
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"


def check_size(size: JsonSize, context: int) -> None:
    """Raise RequestError 413 for JSON of more parts than any request has: parsing it would take too long."""
    most_commas = max(_MOST_COMMAS, 2 * context)
    if size.opened > _MOST_OPENED or size.commas > most_commas or size.names > _MOST_NAMES:
        raise RequestError(
            f"The body has {size.opened} opening braces and brackets, {size.commas} commas and {size.names} names; at "
            f"most {_MOST_OPENED}, {most_commas} and {_MOST_NAMES} are allowed.",
            ErrorKind.TOO_LARGE,
            code="request_too_large",
        )


def _checked_names(value: Any) -> int:
    """Return how many names the objects of a value have, each once an object; raise RequestError 400 for a deep one."""
    names, levels = 0, 0
    level = [value] if isinstance(value, dict | list) else []
    while level:
        levels += 1
        if levels > _MOST_LEVELS:
            raise _too_deep()
        names += sum(len(each) for each in level if isinstance(each, dict))
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inside for item in items if isinstance(item, dict | list)]
    return names


def _too_deep() -> RequestError:
    return RequestError(f"The body is nested deeper than {_MOST_LEVELS} levels.", code="invalid_json")


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    """Raise RequestError for an object in which a name comes twice: parsers disagree on which one counts."""
    if len(dict(pairs)) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        repeated = shortened(name)
        raise RequestError(f"`{repeated}` comes twice in an object.", param=repeated, code="invalid_json")


def _explain(message: str, value: Any, shape: Any, place: str) -> RequestError:
    if len(message) > _LONGEST_MESSAGE:
        message = message[: _LONGEST_MESSAGE // 2] + "…" + message[-_LONGEST_MESSAGE // 2 :]
    found = _LOCATION.search(message)
    path = found["path"] if found else ""
    reason = _LOCATION.sub("", message)
    if unknown := _UNKNOWN.match(reason):
        name = shortened(unknown["field"])
        whole = _join(place, _join(path, name))
        return RequestError(f"Unknown field `{whole}`.{_hint(name, path, shape)}", param=whole)
    if missing := _MISSING.match(reason):
        whole = _join(place, _join(path, missing["field"]))
        return RequestError(f"`{whole}` is missing.", param=whole)
    whole = _join(place, path) if path else place
    if refused := _NOT_ALLOWED.match(reason):
        allowed = ", ".join(map(repr, allowed_values(shape, path, value)))
        reason = f"{shortened(refused['value'])} is none of the allowed values, {allowed}"
    elif _NO_MATCH.match(reason) and (expected := description(shape, path, value)):
        reason = f"expected {expected}"
    return RequestError(f"`{whole}`: {reason}.", param=whole)


def _hint(name: str, path: str, shape: Any) -> str:
    """Return where the field belongs if it is one of another place; else the closest name there is."""
    fields = fields_of(shape)
    elsewhere = [field for field in fields if field.rpartition(".")[2] == name]
    if elsewhere:
        return f" It belongs at {' or '.join(f'`{field}`' for field in elsewhere)}."
    if name == "extra_body":
        return " Send its fields at the top level, as the openai client's extra_body= does."
    if _OTHER_NAMES.get(name) in fields:
        return f" Did you mean `{_OTHER_NAMES[name]}`?"
    here = re.sub(r"\[\d+\]", "[]", path)
    siblings = [field for field in fields if field.rpartition(".")[0] == here]
    for candidates in (siblings, fields):
        by_name = {field.rpartition(".")[2]: field for field in candidates}
        for match in difflib.get_close_matches(name, by_name, n=1, cutoff=0.6 if candidates is siblings else 0.8):
            return f" Did you mean `{match if candidates is siblings else by_name[match]}`?"
    return ""


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@cache
def fields_of(shape: Any) -> tuple[str, ...]:
    """Return the paths of all fields of a struct or union, as `messages[].content[].text`."""
    return tuple(dict.fromkeys(_walk(inspect.type_info(shape), "")))


def _walk(node: inspect.Type, path: str) -> Iterator[str]:
    if isinstance(node, inspect.Metadata):
        yield from _walk(node.type, path)
    elif isinstance(node, inspect.UnionType):
        for member in node.types:
            yield from _walk(member, path)
    elif isinstance(node, inspect.ListType):
        yield from _walk(node.item_type, path + "[]")
    elif isinstance(node, inspect.StructType):
        for field in node.fields:
            yield _join(path, field.encode_name)
            yield from _walk(field.type, _join(path, field.encode_name))
