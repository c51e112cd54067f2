"""Find the form in which a chat template writes arguments that are no JSON. An answer may be cut off within a call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]

_BROKEN = '{"river": "'


class CallForm:
    """Know whether a template takes the text of arguments over.

    It learns that from what `render` makes of a broken call.
    """

    def __init__(self, render: Callable[[Sequence[Message]], str]) -> None:
        self._takes_text = _takes_text(render)

    def of(self, message: Message) -> Message:
        """Return a message whose calls a template can write. Broken arguments become their text, or none."""
        calls = message.get("tool_calls")
        if not calls or self._takes_text or all(isinstance(_arguments(call), Mapping) for call in calls):
            return message
        return {**message, "tool_calls": [_with_object(call) for call in calls]}


def _arguments(call: Mapping[str, Any]) -> Any:
    return call["function"]["arguments"]


def _with_object(call: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(_arguments(call), Mapping):
        return call
    return {**call, "function": {**call["function"], "arguments": {}}}


def _takes_text(render: Callable[[Sequence[Message]], str]) -> bool:
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "flow", "arguments": _BROKEN}}
    question = {"role": "user", "content": "Where?"}
    try:
        return _BROKEN in render([question, {"role": "assistant", "content": "", "tool_calls": [call]}])
    except Exception:  # whatever a template raises
        return False
