"""Tell what a field may have, by the type of its request."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

_STEP = re.compile(r"\[[^\]]*\]|[^.\[]+")


def allowed_values(shape: Any, path: str, value: Any) -> list[Any]:
    """Return the values that may stand at the path of a value of this shape; none where it is no choice.

    The value tells which of several structs is meant.
    """
    choices = [node for node in _types_at(shape, path, value) if isinstance(node, inspect.LiteralType)]
    return list(dict.fromkeys(each for node in choices for each in node.values))


def description(shape: Any, path: str, value: Any) -> str:
    """Return the description of the field at a path of a value's shape. It is empty where none is given."""
    told = (
        node.extra_json_schema or {} for node in _types_at(shape, path, value) if isinstance(node, inspect.Metadata)
    )
    return next((each["description"] for each in told if "description" in each), "")


def _types_at(shape: Any, path: str, value: Any) -> list[inspect.Type]:
    nodes = list(_members(inspect.type_info(shape)))
    for step in _STEP.findall(path):
        nodes = [inner for node in _meant(nodes, value) for inner in _inside(node, step)]
        value = _at(value, step)
    return nodes


def _members(node: inspect.Type) -> Iterator[inspect.Type]:
    """Yield a type and the types that it is made of."""
    yield node
    if isinstance(node, inspect.Metadata):
        yield from _members(node.type)
    elif isinstance(node, inspect.UnionType):
        for member in node.types:
            yield from _members(member)


def _meant(nodes: list[inspect.Type], value: Any) -> list[inspect.Type]:
    """Return the struct whose tag the value has, if there is one; else all types."""
    tagged = [node for node in nodes if isinstance(node, inspect.StructType) and node.tag_field]
    fields = value if isinstance(value, dict) else {}
    return [node for node in tagged if fields.get(node.tag_field) == node.tag] or nodes


def _inside(node: inspect.Type, step: str) -> Iterator[inspect.Type]:
    """Yield the types of what a step of a path leads to: a field, an item or a value."""
    if isinstance(node, inspect.StructType):
        if step == node.tag_field:
            yield inspect.LiteralType((node.tag,))
        for field in node.fields:
            if field.encode_name == step:
                yield from _members(field.type)
    elif isinstance(node, inspect.ListType):
        yield from _members(node.item_type)
    elif isinstance(node, inspect.DictType):
        yield from _members(node.value_type)


def _at(value: Any, step: str) -> Any:
    """Return what a step leads to; None where that cannot be told."""
    try:
        return value[int(step[1:-1])] if step.startswith("[") else value[step]
    except (KeyError, IndexError, TypeError, ValueError):
        return None
