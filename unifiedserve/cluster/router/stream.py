"""Read a node's stream of events: text before a mark is the client's, the rest waits."""

import re

from unifiedserve.server.answers.marks import read_mark

_BREAK = b"\n\n"  # behind each event
_MARK = re.compile(rb"\n\n(:[^\n]*)(?=\n\n)")


class Marks:
    """Hold the marks of an answer, read only if another node goes on."""

    def __init__(self) -> None:
        self._held = bytearray()

    def add(self, mark: bytes) -> None:
        """Note a mark whose events are the client's from now on."""
        self._held += mark + _BREAK

    @property
    def tokens(self) -> list[list[int]] | None:
        """Return the tokens of each answer that the client has; None if nothing has come."""
        if not self._held:
            return None
        begun = list[list[int]]()
        for block in self._held.removesuffix(_BREAK).split(_BREAK):
            if mark := read_mark(block):
                index, tokens = mark
                begun += [[] for _ in range(index + 1 - len(begun))]
                begun[index] += tokens
        return begun


class MarkedStream:
    """Take the stream's bytes as they come, however they are cut."""

    def __init__(self, marks: Marks) -> None:
        """Add each mark that comes to `marks`."""
        self.rest = b""  # what came behind the last mark: an end, if the stream has ended well
        self._marks = marks

    def take(self, chunk: bytes) -> bytes:
        """Return the events before the last mark that has come, without the marks."""
        text = _BREAK + self.rest + chunk  # a mark may be the first
        events, begin = b"", len(_BREAK)
        for found in _MARK.finditer(text):
            events += text[begin : found.start() + len(_BREAK)]
            begin = found.end() + len(_BREAK)
            self._marks.add(found[1])
        self.rest = text[begin:]
        return events
