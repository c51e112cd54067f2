"""Tools that are offered, calls of them, and an engine that says them."""

import json
from collections.abc import AsyncGenerator
from typing import Any

from scripted import ScriptedEngine, delta

from unifiedserve.messages.api import Delta, GenerateRequest

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
TOOLS = [WEATHER, {"type": "function", "function": {"name": "time"}}]
TEMPLATE = "{{ tools }} <tool_call> </think>"
CALL = {"name": "weather", "arguments": {"place": "Zürich }{"}}
OTHER = {"name": "time", "arguments": {}}
ARGUMENTS = json.dumps(CALL["arguments"], ensure_ascii=False)


def wrapped(call: dict[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


def answering(text: str, template: str = TEMPLATE, **options: Any) -> ScriptedEngine:
    """An engine that says this, three characters at a time."""
    pieces = [text[i : i + 3] for i in range(0, len(text), 3)]

    async def script(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        for number, piece in enumerate(pieces, start=1):
            yield delta(piece, number, finish="stop" if number == len(pieces) else None)

    engine = ScriptedEngine(script, **options)
    engine.processor.chat.template = template
    return engine
