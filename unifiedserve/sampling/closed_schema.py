"""Close JSON schemas whose objects have the properties that they declare, and no others."""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_MAPS = ("properties", "$defs", "definitions")  # of schemas by name
_LISTS = ("anyOf", "oneOf", "prefixItems")
# Beside them properties may be declared elsewhere.
_OPEN = {"additionalProperties", "patternProperties", "propertyNames", "minProperties", "$ref", "anyOf", "oneOf"}
_JOINING = {"allOf", "not", "if", "dependentSchemas", "dependencies", "unevaluatedProperties", "$dynamicRef"}


def closed(schema: Any) -> Any:
    """Return a schema in which undeclared properties are not allowed. Grammars of vLLM read it so.

    It stays as it is where schemas are joined: each declares a part of an object's properties there.
    """
    if not isinstance(schema, Mapping) or any(_joins(part) for part in _parts(schema)):
        return schema
    return _closed(schema)


def _closed(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    for name in _MAPS:
        if isinstance(schema.get(name), Mapping):
            made[name] = {key: _closed(value) for key, value in schema[name].items()}
    for name in _LISTS:
        if isinstance(schema.get(name), list):
            made[name] = [_closed(value) for value in schema[name]]
    if "items" in schema:
        made["items"] = _closed(schema["items"])
    if _declares_all(schema):
        made["additionalProperties"] = False
    return made


def _declares_all(schema: Schema) -> bool:
    properties, required = schema.get("properties"), schema.get("required", [])
    return (
        isinstance(properties, Mapping)
        and not _OPEN & schema.keys()
        and isinstance(required, list)
        and all(isinstance(name, str) and name in properties for name in required)
    )


def _joins(schema: Schema) -> bool:
    beside = schema.keys() & {"$ref", "anyOf", "oneOf"}
    return bool(_JOINING & schema.keys()) or ("properties" in schema and bool(beside))


def _parts(schema: Any) -> Iterator[Schema]:
    """Yield a schema and those within it."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    for name in _MAPS:
        within = schema.get(name)
        if isinstance(within, Mapping):
            for part in within.values():
                yield from _parts(part)
    for name in _LISTS:
        within = schema.get(name)
        if isinstance(within, list):
            for part in within:
                yield from _parts(part)
    yield from _parts(schema.get("items"))
