"""Find what each token adds to a text, in bytes: a character may be made of several tokens.

The rules are those of the tokenizer's decoder, read once; their bytes for a token are found out when it first comes.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

_Rule = Callable[[str], "str | bytes"]


class TokenPiece(NamedTuple):
    """Describe a token by itself.

    It has `bytes`, `text` that shows them, and a mark if it is special, which texts leave out.
    """

    text: str
    bytes: bytes
    special: bool


class TokenBytes(dict[int, TokenPiece]):
    """Hold the pieces that have come so far, by token. Others are added as they are asked for."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self._tokenizer = tokenizer.backend_tokenizer
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {token for token, content in added.items() if content.special}
        decoder = self._tokenizer.decoder
        steps = list(_steps(json.loads(decoder.__getstate__()))) if decoder is not None else []
        rules = [_rule(step) for step in steps]
        known = [rule for rule in rules if rule is not None]
        self._rules = known if steps and len(known) == len(rules) else None
        #: whether a text loses the space that its first token begins with
        self.strips_first = any(map(_strips, steps))

    def __missing__(self, token: int) -> TokenPiece:
        written = self._tokenizer.id_to_token(token) or ""
        data = self._decoded(token) if self._rules is None else _apply(self._rules, written)
        special = token in self._special
        piece = TokenPiece(written if special else data.decode(errors="replace"), data, special)
        self[token] = piece
        return piece

    def _decoded(self, token: int) -> bytes:
        text: str = self._tokenizer.decode([token], skip_special_tokens=False)
        return text.encode()


def _apply(rules: list[_Rule], written: str) -> bytes:
    for rule in rules:
        made = rule(written)
        if isinstance(made, bytes):
            return made
        written = made
    return written.encode()


def _steps(decoder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the decoders that one is made of."""
    if decoder["type"] == "Sequence":
        for step in decoder["decoders"]:
            yield from _steps(step)
    else:
        yield decoder


def _rule(step: Mapping[str, Any]) -> _Rule | None:
    """Return what a step makes of one token; None if that depends on the others, or is not known."""
    match step:
        case {"type": "ByteLevel"}:
            return _byte_level
        case {"type": "ByteFallback"}:
            return _byte_fallback
        case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
            return lambda written: written.replace(pattern, content)
        case {"type": "Metaspace", "replacement": replacement}:
            return lambda written: written.replace(replacement, " ")
        case {"type": "Fuse"} | {"type": "Strip", "content": " ", "stop": 0}:
            return lambda written: written
    return None


def _strips(step: Mapping[str, Any]) -> bool:
    if step["type"] == "Strip":
        return bool(step["start"])
    return bool(step["type"] == "Metaspace" and step.get("prepend_scheme") != "never")


def _byte_level(written: str) -> bytes:
    try:
        return written.translate(_byte_letters()).encode("latin-1")
    except UnicodeEncodeError:  # a token that was added as text
        return written.encode()


@cache
def _byte_letters() -> dict[int, str]:
    """Return the letters that stand for bytes in byte-level vocabularies. Letters that stand for none are left out."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = dict.fromkeys(hidden, "\uffff")
    return letters | {0x100 + number: chr(byte) for number, byte in enumerate(hidden)}


def _byte_fallback(written: str) -> str | bytes:
    if len(written) == 6 and written.startswith("<0x") and written.endswith(">"):
        try:
            return bytes.fromhex(written[3:5])
        except ValueError:
            return written
    return written
