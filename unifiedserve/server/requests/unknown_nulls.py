"""Unknown fields that are null: clients send them back with earlier answers, and they ask for nothing."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import inspect


def without_unknown_nulls(value: Any, shape: Any) -> Any:
    """Return JSON for a struct, less the fields that are null and that no struct there has."""
    return _pruned(value, [inspect.type_info(shape)])


def _pruned(value: Any, nodes: Sequence[inspect.Type]) -> Any:
    members = [member for node in nodes for member in _members(node)]
    if isinstance(value, list):
        items = [node.item_type for node in members if isinstance(node, inspect.ListType)]
        return [_pruned(item, items) for item in value] if items else value
    structs = [node for node in members if isinstance(node, inspect.StructType)]
    if not isinstance(value, dict) or not structs:
        return value
    fields: dict[str, list[inspect.Type]] = {node.tag_field: [] for node in structs if node.tag_field}
    for field in (field for node in structs for field in node.fields):
        fields.setdefault(field.encode_name, []).append(field.type)
    return {
        name: _pruned(item, fields.get(name, ())) for name, item in value.items() if item is not None or name in fields
    }


def _members(node: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the alternatives that a type is."""
    if isinstance(node, inspect.Metadata):
        yield from _members(node.type)
    elif isinstance(node, inspect.UnionType):
        for member in node.types:
            yield from _members(member)
    else:
        yield node
