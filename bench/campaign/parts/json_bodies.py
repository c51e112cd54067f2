"""Bodies that are no JSON, odd JSON, or far more JSON than anybody means."""

import json
from random import Random

from bench.campaign.asking import (
    CHAT,
    DETOKENIZE,
    EMBEDDINGS,
    MESSAGES,
    RESPONSES,
    TEXTS,
    TOKENIZE,
    Request,
    chat,
    kind,
)

PATHS = (CHAT, TEXTS, RESPONSES, MESSAGES, EMBEDDINGS, TOKENIZE, DETOKENIZE)
MIB = 1 << 20
_GOOD = json.dumps(chat()).encode()
_NUMBERS = (b"1e999", b"-1e999", b"NaN", b"-Infinity", b"0x10", b"01", b"1.", b".5", b"+1", b"1" * 5000, b"1e-999999")
_TEXTS = (
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\u0000"',
    b'"\xff\xfe"',
    b'"\xed\xa0\x80"',
    b'"\\x41"',
    b'"a\nb"',
    b'"',
)


def _path(random: Random) -> str:
    return random.choice(PATHS)


def _mutated(random: Random) -> Request:
    """Return a good body with bytes changed, gone, doubled or moved."""
    body = bytearray(_GOOD)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(body) or 1)
        how = random.randrange(4)
        if how == 0 and body:
            body[at] = random.randrange(256)
        elif how == 1:
            del body[at : at + random.randint(1, 20)]
        elif how == 2:
            body[at:at] = body[at : at + random.randint(1, 20)]
        else:
            body[at:at] = random.choice((b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"null", b"\x00"))
    return Request(_path(random), bytes(body), expect=() if _is_good(body) else (400, 404))


def _is_good(body: bytearray) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


def _cut(random: Random) -> Request:
    return Request(_path(random), _GOOD[: random.randrange(len(_GOOD))], expect=(400,))


def _nested(random: Random) -> Request:
    depth = random.choice((100, 1000, 5000, 100_000, 1_000_000))
    opened, closed = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    where = random.choice((b'"messages"', b'"x"', b'"metadata"', b'"chat_template_kwargs"', b'"guided_json"'))
    value = opened * depth + (b"1" + closed * depth if random.random() < 0.7 else b"")
    return Request(_path(random), b"{" + where + b":" + value + b"}", expect=(400, 413))


def _doubled(random: Random) -> Request:
    name = random.choice(("messages", "max_tokens", "model", "temperature"))
    return Request(CHAT, _GOOD[:-1] + f', "{name}": 1, "{name}": 2}}'.encode(), expect=(400,))


def _number(random: Random) -> Request:
    field = random.choice(("max_tokens", "temperature", "seed", "n", "top_p", "priority", "deadline"))
    return Request(CHAT, _with(field, random.choice(_NUMBERS)), expect=(400,))


def _text(random: Random) -> Request:
    """Return a text that is no Unicode, as a message or a prompt."""
    value = random.choice(_TEXTS)
    if random.random() < 0.5:
        return Request(CHAT, b'{"max_tokens":4,"messages":[{"role":"user","content":' + value + b"}]}")
    return Request(random.choice((TEXTS, TOKENIZE)), b'{"prompt":' + value + b"}")


def _encoded(random: Random) -> Request:
    text = _GOOD.decode()
    encodings = ("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-7", "cp037")
    return Request(CHAT, text.encode(random.choice(encodings)), expect=(200, 400))


def _noise(random: Random) -> Request:
    return Request(_path(random), random.randbytes(random.choice((1, 10, 1000, 100_000))), expect=(400,))


def _other_value(random: Random) -> Request:
    return Request(
        _path(random), random.choice((b"", b"null", b"[]", b"1", b'"a"', b"true", b"{}", b" ")), expect=(400,)
    )


def _million_numbers(random: Random) -> Request:
    field = random.choice((b"prompt", b"input", b"tokens", b"stop_token_ids", b"x", b"messages", b"stop"))
    return Request(_path(random), b'{"' + field + b'":[' + b"1," * 1_000_000 + b"1]}")


def _long_name(random: Random) -> Request:
    return Request(_path(random), b'{"' + b"n" * (20 * MIB) + b'":1}', expect=(400, 413))


def _long_value(random: Random) -> Request:
    field = random.choice((b"model", b"user", b"response_format", b"tool_choice"))
    return Request(_path(random), b'{"' + field + b'":"' + b"m" * (12 * MIB) + b'"}', expect=(400, 404, 413))


def _many_messages(random: Random) -> Request:
    message = random.choice((b"{}", b"[]", b'{"role":"user","content":""}', b"null", b'"a"'))
    return Request(CHAT, b'{"messages":[' + (message + b",") * (2_000_000 // len(message)) + message + b"]}")


def _many_names(random: Random) -> Request:
    names = b",".join(b'"%x":0' % random.getrandbits(64) for _ in range(150_000))
    where = random.choice((b'{"metadata":{%b}}', b'{"logit_bias":{%b}}', b"{%b}", b'{"chat_template_kwargs":{%b}}'))
    return Request(CHAT, where % names, expect=(400, 413))


def _too_large(random: Random) -> Request:
    return Request(_path(random), b" " * (65 * MIB), expect=(413,))


def _spaces(random: Random) -> Request:
    return Request(CHAT, _GOOD[:-1] + random.choice((b" ", b"\n", b"\t")) * (15 * MIB) + b"}", expect=(200,))


def _with(field: str, value: bytes) -> bytes:
    body = {name: item for name, item in chat().items() if name != field}
    return json.dumps(body).encode()[:-1] + b', "' + field.encode() + b'": ' + value + b"}"


KINDS = [
    kind("body with changed bytes", 30, _mutated),
    kind("body cut off", 10, _cut),
    kind("deep nesting", 6, _nested),
    kind("doubled names", 4, _doubled),
    kind("odd numbers", 8, _number),
    kind("texts that are no Unicode", 8, _text),
    kind("other encodings", 6, _encoded),
    kind("noise", 6, _noise),
    kind("other JSON values", 6, _other_value),
    kind("a million numbers", 0.4, _million_numbers),
    kind("a name of 20 MiB", 0.1, _long_name),
    kind("a value of 12 MiB", 0.2, _long_value),
    kind("thousands of messages", 0.4, _many_messages),
    kind("thousands of names", 0.3, _many_names),
    kind("a body of 65 MiB", 0.1, _too_large),
    kind("spaces of 15 MiB", 0.1, _spaces),
]
