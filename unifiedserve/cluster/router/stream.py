"""Read a node's stream of events: text before a mark is the client's, the rest waits."""

import re
from collections.abc import Callable

from unifiedserve.server.answers.marks import read_mark

Mark = tuple[int, list[int]] | None  # the number and the new tokens of an answer; None behind an opening

_MARK = re.compile(rb"(?:\A|(?<=\n\n)):[^\n]*\n\n")


class MarkedStream:
    """Take the stream's bytes as they come, however they are cut."""

    def __init__(self) -> None:
        self.rest = b""  # what came behind the last mark: an end, if the stream has ended well

    def take(self, chunk: bytes, note: Callable[[Mark], None]) -> bytes:
        """Return the events before the last mark that has come, without the marks; tell `note` of each mark."""
        text = self.rest + chunk
        events, begin = b"", 0
        for found in _MARK.finditer(text):
            events += text[begin : found.start()]
            begin = found.end()
            note(read_mark(found[0]))
        self.rest = text[begin:]
        return events
