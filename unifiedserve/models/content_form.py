"""Find the form in which a chat template reads what a message says: text, or a list of parts.

Clients send either; a template that reads only one of them fails with the other, or leaves it out without a word.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]

_SAID = "a river"


class ContentForm:
    """Know which forms a template reads, by what `render` makes of a question in each."""

    def __init__(self, render: Callable[[Sequence[Message]], str]) -> None:
        self._text = _reads(render, _SAID)
        self._parts = _reads(render, [_part(_SAID)])

    def of(self, message: Message) -> Message:
        """Return a message whose text is in a form that the template reads; one with media stays as it is."""
        content = message.get("content")
        if isinstance(content, str) and self._parts and not self._text:
            return {**message, "content": [_part(content)]}
        if isinstance(content, list) and self._text and not self._parts and all(map(_is_text, content)):
            return {**message, "content": "\n".join(part["text"] for part in content)}
        return message


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text"


def _reads(render: Callable[[Sequence[Message]], str], content: Any) -> bool:
    try:
        text = render([{"role": "user", "content": content}])
    except Exception:  # whatever a template raises
        return False
    printed = "'type'" in text or '"type"' in text  # the list itself
    return _SAID in text and not printed
