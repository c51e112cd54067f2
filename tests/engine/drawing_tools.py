"""Tools that models of random weights call, and the arguments that a call may have."""

import json
from typing import Any

SHAPE = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 1, "maximum": 9}, "kind": {"enum": ["sun", "rain"]}},
    "required": ["count", "kind"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "draw", "parameters": SHAPE}},
    {"type": "function", "function": {"name": "stop_drawing"}},
]


def check(call: Any) -> None:
    arguments = json.loads(call.function.arguments)
    if call.function.name == "draw":
        assert set(arguments) == {"count", "kind"}
        assert arguments["count"] in range(1, 10)
        assert arguments["kind"] in ("sun", "rain")
    else:
        assert call.function.name == "stop_drawing"
        assert isinstance(arguments, dict)
