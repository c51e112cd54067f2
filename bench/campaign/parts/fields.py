"""Each field of each endpoint with values of wrong types and out of range, as the OpenAPI document tells of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple

from bench.campaign.asking import (
    CHAT,
    COUNT_TOKENS,
    DETOKENIZE,
    EMBEDDINGS,
    MESSAGES,
    PLAN,
    RESPONSES,
    TEXTS,
    TOKENIZE,
    Request,
    asks,
    chat,
    kind,
)
from unifiedserve.server.app import OF_AN_ENGINE
from unifiedserve.server.files import route as files
from unifiedserve.server.openapi import openapi

_GOOD: dict[str, dict[str, Any]] = {
    CHAT: chat(),
    PLAN: chat(),
    TEXTS: {"prompt": "It is", "max_tokens": 4, "deadline": 20},
    RESPONSES: {"input": "What is this?", "max_output_tokens": 16, "deadline": 20},
    MESSAGES: {"messages": [{"role": "user", "content": "What is this?"}], "max_tokens": 4, "deadline": 20},
    COUNT_TOKENS: {"messages": [{"role": "user", "content": "What is this?"}]},
    EMBEDDINGS: {"input": "a", "deadline": 20},
    TOKENIZE: {"prompt": "a"},
    DETOKENIZE: {"tokens": [1, 2]},
}
_WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    2**31,
    2**63,
    2**64,
    -(2**70),
    1e300,
    "",
    "a",
    "\x00",
    [],
    [[]],
    {},
    {"a": 1},
    "A" * 9999,
)
_METHODS = ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "POST")
_DEEPEST = 5  # structs in structs
Path = tuple[str | int, ...]


class Field(NamedTuple):
    """A field of an endpoint: where it is, and what the document says of it."""

    endpoint: str
    path: Path
    schema: Mapping[str, Any]


@cache
def fields() -> Sequence[Field]:
    """Return all fields of all bodies."""
    document = openapi("", OF_AN_ENGINE)
    schemas = document["components"]["schemas"]
    found = []
    for endpoint, operations in document["paths"].items():
        body = operations.get("post", {}).get("requestBody")
        if body:
            root = body["content"]["application/json"]["schema"]
            found += [Field(endpoint, path, schema) for path, schema in _walk(root, schemas, ())]
    return found


def _walk(
    schema: Mapping[str, Any], schemas: Mapping[str, Any], path: Path
) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    for member in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _walk(member, schemas, path)
    if len(path) < 2 * _DEEPEST and isinstance(schema.get("items"), Mapping):
        yield from _walk(schema["items"], schemas, (*path, 0))
    for name, item in schema.get("properties", {}).items():
        if sum(isinstance(step, str) for step in path) < _DEEPEST:
            yield (*path, name), item
            yield from _walk(item, schemas, (*path, name))


def _bounds(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield values at and beyond what a schema allows."""
    for member in (schema, *schema.get("anyOf", ())):
        for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if bound in member:
                yield from (member[bound], member[bound] - 1, member[bound] + 1)
        if "maxItems" in member:
            yield from (["a"] * member["maxItems"], [1] * (member["maxItems"] + 1), [{}] * (member["maxItems"] + 1))
        if "maxLength" in member:
            yield "a" * (member["maxLength"] + 1)
        yield from member.get("enum", ())


def _one_field(random: Random) -> Request:
    field = random.choice(fields())
    values = [*_WRONG, *_bounds(field.schema)]
    return asks(field.endpoint, _replaced(_GOOD[field.endpoint], field.path, random.choice(values)))


def _two_fields(random: Random) -> Request:
    """Return a request with two fields of one endpoint at their bounds, which may contradict each other."""
    endpoint = random.choice(list(_GOOD))
    body: Any = _GOOD[endpoint]
    for field in random.sample([field for field in fields() if field.endpoint == endpoint and len(field.path) == 1], 2):
        values = [*_bounds(field.schema), *_WRONG]
        body = _replaced(body, field.path, random.choice(values))
    return asks(endpoint, body)


def _without(random: Random) -> Request:
    endpoint = random.choice(list(_GOOD))
    body = dict(_GOOD[endpoint])
    del body[random.choice(list(body))]
    return asks(endpoint, body)


def _unknown(random: Random) -> Request:
    endpoint = random.choice(list(_GOOD))
    name = random.choice(("x", "Model", "messages ", "__class__", "\x00", "é" * 300, "max_token", "$ref", ""))
    return asks(endpoint, {**_GOOD[endpoint], name: 1}, 400)


def _replaced(value: Any, path: Path, item: Any) -> Any:
    """Return `value` with `item` at a path, made of what there is and of empty objects."""
    if not path:
        return item
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [_replaced(value[0] if isinstance(value, list) and value else {}, rest, item)]
    known = value if isinstance(value, dict) else {}
    return {**known, step: _replaced(known.get(step), rest, item)}


def _method(random: Random) -> Request:
    """Return a request of a method that may not be at a path; HEAD answers have no body to be judged."""
    paths = [endpoint.path for endpoint in (*OF_AN_ENGINE, *files.ENDPOINTS) if endpoint.path != "/v1/events"]
    path = random.choice([*paths, "/", "/docs", "/openapi.json", "/nothing", "/v1", "//", "/%00", "/..%2f..%2fetc"])
    method = random.choice([each for each in _METHODS if each != "HEAD"])
    return Request(path.replace("{id}", "file-0"), b"", method)


def _headers(random: Random) -> Request:
    """Return a good request with an odd header."""
    name, value = random.choice(_ODD_HEADERS)
    return Request(CHAT, json.dumps(_GOOD[CHAT]).encode(), headers={"Content-Type": "application/json", name: value})


_ODD_HEADERS = [
    ("Content-Type", "text/plain"),
    ("Content-Type", "application/json; charset=utf-16"),
    ("Content-Type", "application/" + "j" * 9999),
    ("Content-Encoding", "gzip"),
    ("Expect", "100-continue"),
    ("Expect", "200-ok"),
    ("X-Request-Id", "a" * 129),
    ("X-Request-Id", "../../x"),
    ("X-Request-Id", "a b"),
    ("X-Viewer", "v" * 9999),
    ("Authorization", "Bearer " + "k" * 9999),
    ("Authorization", "Basic !!!"),
    ("Cookie", "unifiedserve-key=" + "%" * 999),
    ("Cookie", "=;=;==;"),
    ("Origin", "http://elsewhere.example"),
    ("Origin", "http://[::1"),
    ("Origin", "null"),
    ("Accept", "image/png"),
    ("Upgrade", "h2c"),
    ("Upgrade", "websocket"),
    ("Range", "bytes=0-"),
    ("Transfer-Encoding", "identity"),
    ("traceparent", "00-zz-zz-zz"),
    ("X-Forwarded-For", "'"),
    ("Host", "elsewhere.example"),
    ("Host", ""),
    ("Host", "127.0.0.1.elsewhere.example"),
    ("Host", "[::1"),
    ("Host", "localhost:99999999"),
    ("Host", "@localhost"),
]


def _form(random: Random) -> Request:
    """Return an upload whose form is broken in some way, or of a strange origin."""
    boundary = random.choice(("x", "", "x" * 200, '"', "é"))
    label = random.choice((f"multipart/form-data; boundary={boundary}", "multipart/form-data", "multipart/mixed"))
    part = b'--x\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
    name = random.choice((b"file", b"purpose", b"", b"f" * 5000, b"file\x00", b'"'))
    form = b"".join(
        part % (name, random.choice((b"", b'; filename="a"', b'; filename="../../a"')), random.randbytes(20))
        for _ in range(random.choice((1, 2, 50, 2000)))
    )
    end = random.choice((b"--x--\r\n", b"", b"--x", b"--x--" * 100))
    headers: dict[str, str | bytes] = {"Content-Type": label.encode("latin-1")}
    if random.random() < 0.2:
        headers["Origin"] = random.choice(("http://elsewhere.example", "http://[", "null", "file://"))
    return Request("/v1/files", form + end, headers=headers)


KINDS = [
    kind("a field with another value", 120, _one_field),
    kind("two fields at their bounds", 50, _two_fields),
    kind("a field that is missing", 5, _without),
    kind("a field that is unknown", 6, _unknown),
    kind("methods and paths", 25, _method),
    kind("odd headers", 25, _headers),
    kind("broken forms", 20, _form),
]
