"""Answers of models with thoughts and calls, some of them odd, and an engine that says them."""

from collections.abc import AsyncGenerator

from hypothesis import strategies as st
from scripted import ScriptedEngine, delta
from weather_tools import CALL, OTHER, TEMPLATE, wrapped

from unifiedserve.messages.api import Delta, GenerateRequest

ODD = [
    '{"name": "time", "arguments": [1]}',
    '{"name": "time", "arguments": "now"}',
    '{"name": "time", "arguments": {"a": NaN}}',
    '{"name": "\\ud800", "arguments": {"a": "\\udc00"}}',
    '{"arguments": {}, "name": "time"}',
    f'{{"name": "time", "arguments": {{"a": {"[" * 40 + "]" * 40}}}}}',
]
PARTS = st.sampled_from(
    ["<think>", "</think>", "\n", "Let me see.", "é", wrapped(CALL), wrapped(OTHER), "<tool_call>", "</tool_call>"]
    + [f"<tool_call>\n{call}\n</tool_call>" for call in ODD]
)
ANSWERS = st.lists(PARTS, max_size=6).map("".join)


def saying(text: str, finish: str = "length") -> ScriptedEngine:
    """An engine that says this, some characters at a time, and has then reached a limit."""

    async def script(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        pieces = [text[i : i + 5] for i in range(0, len(text), 5)] or [""]
        for number, piece in enumerate(pieces, start=1):
            yield delta(piece, number, finish=finish if number == len(pieces) else None)

    engine = ScriptedEngine(script)
    engine.processor.chat.template = TEMPLATE
    return engine
