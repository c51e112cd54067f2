"""Read in a request its model, the length of its texts, and its media."""

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

_MEDIA = {"image_url", "video_url", "input_image", "input_video", "image", "video"}
_CHARACTERS_A_TOKEN = 4.0
_KEY_BYTES = 16
_KEPT = re.compile(rb'"(file-[0-9a-zA-Z]+|resp_[0-9a-f]{32})"')
_PATHS = {b"file-": "/v1/files/", b"resp_": "/v1/responses/"}


class _Body(msgspec.Struct):
    """Hold the fields of all endpoints that matter here."""

    model: str | None = None
    stream: bool | None = False
    messages: Any = None
    input: Any = None
    prompt: Any = None
    system: Any = None
    instructions: Any = None


class Prefix(NamedTuple):
    """Identify the beginning of a conversation: a digest of its first texts, and their tokens, as estimated."""

    key: str
    tokens: int


class Asked(msgspec.Struct, frozen=True):
    """Hold a request's model, its streaming, its estimated text tokens, and its media.

    `key` is a digest of the media or, without any, of its first text: the same for every caller. `prefixes` are all
    beginnings of a conversation without media. `kept` is the path of the first thing that one node keeps for it.
    """

    model: str | None = None
    stream: bool = False
    tokens: int = 0
    media: int = 0
    key: str = ""
    prefixes: tuple[Prefix, ...] = ()
    kept: str | None = None


def read_asked(body: bytes) -> Asked:
    """Return what a router needs of a body; of one that is no such JSON nothing: a node says what is wrong with it."""
    try:
        known = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Asked()
    texts, media = list[str](), list[bytes]()
    for field in (known.instructions, known.system, known.messages, known.input, known.prompt):
        for found in _parts(field):
            if isinstance(found, str):
                texts.append(found)
            else:
                media.append(msgspec.json.encode(found))
    prefixes = tuple(_prefixes(texts))
    tokens = (prefixes[-1].tokens if prefixes else 0) + _token_ids(known.prompt)
    key = _digest(*media) if media else prefixes[0].key if prefixes else ""
    beginnings = () if media else prefixes
    return Asked(known.model, bool(known.stream), tokens, len(media), key, beginnings, _kept_in(body))


def _kept_in(body: bytes) -> str | None:
    found = _KEPT.search(body)
    return _PATHS[found[1][:5]] + found[1].decode() if found else None


def _parts(value: Any) -> Iterator[str | dict[str, Any]]:
    """Yield the texts and the media in any of the endpoints' fields, in their order."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict):
            kind = found.get("type")
            if isinstance(kind, str) and kind in _MEDIA:
                yield found
            else:
                waiting += reversed([each for name, each in found.items() if name not in ("role", "type")])
        elif isinstance(found, list):
            waiting += reversed(found)


def _token_ids(prompt: Any) -> int:
    if not isinstance(prompt, list):
        return 0
    return sum(len(each) if isinstance(each, list) else isinstance(each, int) for each in prompt)


def _prefixes(texts: Iterable[str]) -> Iterator[Prefix]:
    digest, characters = blake2b(digest_size=_KEY_BYTES), 0
    for text in texts:
        digest.update(text.encode(errors="replace") + b"\0")
        characters += len(text)
        yield Prefix(digest.copy().hexdigest(), int(characters / _CHARACTERS_A_TOKEN))


def _digest(*parts: bytes) -> str:
    return blake2b(b"\0".join(parts), digest_size=_KEY_BYTES).hexdigest()
