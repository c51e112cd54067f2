"""Drop fields that no struct has, but that ask for nothing: null ones, and options at the values of their defaults.

Clients send them back with earlier answers, or always.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import inspect

from unifiedserve.errors import RequestError


def without_idle_fields(value: Any, shape: Any, place: str = "") -> Any:
    """Return JSON for a struct less such fields.

    Raises RequestError 400 for an unsupported option that asks for something.
    """
    return _pruned(value, [inspect.type_info(shape)], place)


def _pruned(value: Any, nodes: Sequence[inspect.Type], place: str) -> Any:
    members = [member for node in nodes for member in _members(node)]
    if isinstance(value, list):
        items = [node.item_type for node in members if isinstance(node, inspect.ListType)]
        return [_pruned(item, items, f"{place}[{i}]") for i, item in enumerate(value)] if items else value
    structs = [node for node in members if isinstance(node, inspect.StructType)]
    if not isinstance(value, dict) or not structs:
        return value
    structs = [node for node in structs if node.tag_field and value.get(node.tag_field) == node.tag] or structs
    fields: dict[str, list[inspect.Type]] = {node.tag_field: [] for node in structs if node.tag_field}
    for field in (field for node in structs for field in node.fields):
        fields.setdefault(field.encode_name, []).append(field.type)
    unknown = {name for name in value.keys() - fields.keys() if not _idle(name, value[name], structs, place)}
    return {
        name: _pruned(item, fields.get(name, ()), f"{place}.{name}" if place else name)
        for name, item in value.items()
        if name in fields or name in unknown
    }


def _idle(name: str, value: Any, structs: Sequence[inspect.StructType], place: str) -> bool:
    """Tell whether a field asks for nothing; False if nothing is known of it."""
    tables = [getattr(node.cls, "unsupported", {}) for node in structs]
    known = [table[name] for table in tables if name in table]
    if value is None or any(value in idle for idle in known):
        return True
    if known:
        param = f"{place}.{name}" if place else name
        raise RequestError(f"`{param}` is not supported by this server.", param=param, code="unsupported")
    return False


def _members(node: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the alternatives that a type is."""
    if isinstance(node, inspect.Metadata):
        yield from _members(node.type)
    elif isinstance(node, inspect.UnionType):
        for member in node.types:
            yield from _members(member)
    else:
        yield node
