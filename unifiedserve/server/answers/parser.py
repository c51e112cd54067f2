"""Take an answer apart as it comes: what was thought, what was said, which tools were called."""

import json
import re
from typing import NamedTuple

from unifiedserve.server.answers.argument_scanner import ArgumentScanner
from unifiedserve.server.answers.tool_formats import ToolFormat

THINK, END_THINK = "<think>", "</think>"
_SEPARATORS = " \t\r\n,;[]"


class Said(NamedTuple):
    text: str


class Thought(NamedTuple):
    text: str


class Called(NamedTuple):
    """Begin a call. `arguments` is JSON text, maybe only its beginning."""

    name: str
    arguments: str


class Arguments(NamedTuple):
    """Carry more of the arguments of the last call."""

    text: str


Piece = Said | Thought | Called | Arguments


class AnswerParser:
    """Feed text through the reasoning, then through the tool calls. Text that may become a mark is held back."""

    def __init__(
        self,
        *,
        reasoning: bool = False,
        thinking: bool = False,
        tools: ToolFormat | None = None,
        whole_calls: bool = True,
    ) -> None:
        """Begin an answer. `reasoning`: <think> … </think> is looked for; `thinking`: the prompt has opened it already.

        With `whole_calls` what turns out to be no call is text; else a call begins before its arguments are known.
        """
        self._may_think = reasoning and not thinking
        self._thinking = reasoning and thinking
        self._tools = tools
        self._whole_calls = whole_calls
        self._calling = False
        self._arguments: ArgumentScanner | None = None  # in a call whose arguments have begun
        self._text = ""
        self._begun = False  # something was said since the last call
        self._after_mark = False  # line breaks next to the marks of reasoning belong to neither side

    def feed(self, text: str, last: bool) -> list[Piece]:
        """Return the pieces that are certain now; all that is left if this was the `last` text."""
        self._text += text
        pieces: list[Piece] = []
        while (step := self._step(last)) is not None:
            pieces += step
        return [piece for piece in pieces if isinstance(piece, Called) or piece.text]

    def _step(self, last: bool) -> list[Piece] | None:
        """Go one step on; None if more text is needed, or none is left."""
        if self._after_mark:
            self._text = self._text.lstrip("\n")
        if not self._text:
            return None
        self._after_mark = False
        if self._thinking:
            return self._think(last)
        if self._may_think:
            return self._begin(last)
        if self._tools is None:
            return [Said(self._take(len(self._text)))]
        if self._arguments is not None:
            return self._argue(self._arguments)
        return self._call(self._tools, last) if self._calling else self._say(self._tools, last)

    def _begin(self, last: bool) -> list[Piece] | None:
        """Find out from the first words whether the answer is thought about."""
        start = self._text.lstrip()
        if THINK.startswith(start) and start != THINK and not last:
            return None
        self._may_think = False
        if start.startswith(THINK):
            self._thinking = True
            self._text = start[len(THINK) :]
            self._after_mark = True
        return []

    def _think(self, last: bool) -> list[Piece] | None:
        end = self._text.find(END_THINK)
        if end >= 0:
            self._thinking = False
            thought = self._take(end)
            self._text = self._text[len(END_THINK) :]
            self._after_mark = True
            return [Thought(thought)]
        ready = len(self._text) - (0 if last else _partial(self._text, END_THINK))
        return [Thought(self._take(ready))] if ready else None

    def _say(self, tools: ToolFormat, last: bool) -> list[Piece] | None:
        if tools.bare and not self._begun:
            start = self._text.lstrip()
            if not start and not last:
                return None
            if start.startswith("{"):
                self._calling = True
                return []
        opening = self._text.find(tools.opening)
        if opening >= 0:
            self._calling = True
            said = self._take(opening)
            self._text = self._text[len(tools.opening) :]
            return [Said(said if self._begun or said.strip() else "")]
        ready = len(self._text) - (0 if last else _partial(self._text, tools.opening))
        if ready == 0 or (not self._begun and not self._text[:ready].strip() and not last):
            return None
        self._begun = True
        return [Said(self._take(ready))]

    def _call(self, tools: ToolFormat, last: bool) -> list[Piece] | None:
        text = self._text.lstrip(_SEPARATORS)
        if tools.closing and text.startswith(tools.closing):
            self._calling = self._begun = False
            self._text = text[len(tools.closing) :]
            return []
        if not text:
            self._text = ""
            return None
        header = _header(text, tools.arguments)
        call = None if header and not self._whole_calls else _read_call(text, tools.arguments)
        if header and (call or not self._whole_calls):
            self._text = text[header.end() :]
            self._arguments = ArgumentScanner(tools.closing)
            return [Called(header["name"], "")]
        if call:
            self._text = text[call[1] :]
            return [call[0]]
        return self._no_call(tools, last)

    def _argue(self, scanner: ArgumentScanner) -> list[Piece]:
        arguments, end = scanner.read(self._text)
        if end is not None:
            self._arguments = None
        self._take(len(self._text) if end is None else end)
        return [Arguments(arguments)]

    def _no_call(self, tools: ToolFormat, last: bool) -> list[Piece] | None:
        """Take what looked like a call for none, or not yet for one."""
        end = self._text.find(tools.closing) + len(tools.closing) if tools.closing in self._text else -1
        if tools.closing and end >= 0:
            self._calling = False
            return [Said(tools.opening + self._take(end))]
        if last:
            return [Said(("" if tools.bare else tools.opening) + self._take(len(self._text)))]
        return None

    def _take(self, length: int) -> str:
        taken, self._text = self._text[:length], self._text[length:]
        return taken


def _partial(text: str, mark: str) -> int:
    """Return the length of the longest end of `text` that begins `mark`."""
    longest = min(len(mark) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if mark.startswith(text[-n:])), 0)


def _header(text: str, key: str) -> re.Match[str] | None:
    """Match a call's beginning up to its arguments, written as templates show it: the name first, then an object."""
    return re.match(rf'\{{\s*"name"\s*:\s*"(?P<name>[^"\\]+)"\s*,\s*"(?:{key}|arguments)"\s*:\s*(?=\{{)', text)


def _read_call(text: str, key: str) -> tuple[Called, int] | None:
    """Return the call that `text` begins with, and its length; None if there is none, or not all of it."""
    try:
        value, length = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get(key, value.get("arguments", {}))
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Called(_encodable(value["name"]), _encodable(written)), length


def _encodable(text: str) -> str:
    """Return text without the halves of characters that JSON can name, and UTF-8 cannot hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
