"""Streams of each dialect of the API, as their readers see them."""

import json
from typing import Any

_CHAT = {"messages": [{"role": "user", "content": "Say it, then 🙂 say it again."}]}
_GREEDY = {"temperature": 0, "stream": True}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {**_CHAT, **_GREEDY, "max_tokens": 20, "ignore_eos": True}),
    "two sampled choices": (
        "/v1/chat/completions",
        {**_CHAT, "stream": True, "max_tokens": 12, "n": 2, "seed": 3, "temperature": 1.0, "ignore_eos": True},
    ),
    "texts": (
        "/v1/completions",
        {"prompt": ["One", "And two"], **_GREEDY, "max_tokens": 9, "stream_options": {"include_usage": True}},
    ),
    "items": ("/v1/responses", {"input": "Say it.", **_GREEDY, "max_output_tokens": 12, "store": False}),
    "messages": ("/v1/messages", {**_CHAT, **_GREEDY, "max_tokens": 12}),
}
_CACHED = {"input_tokens", "cached_tokens", "cache_read_input_tokens", "input_tokens_details"}
_ITS_OWN = {*_CACHED, "created", "created_at", "completed_at"}


def shown(blocks: list[bytes]) -> list[Any]:
    """Return what clients read, without what differs from one request to the next of the same kind."""
    lines = [line for block in blocks for line in block.splitlines() if line.startswith(b"data: ")]
    return [_plain(json.loads(line[6:])) if b"[DONE]" not in line else line for line in lines]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if name not in _ITS_OWN}
    return [_plain(each) for each in value] if isinstance(value, list) else value
