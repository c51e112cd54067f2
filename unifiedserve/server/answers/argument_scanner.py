"""Find the end of a tool call's arguments while they are being written."""


class ArgumentScanner:
    """Read a call from its arguments' object to its end. The call is an object around it.

    Only brackets and strings are looked at. Outside of strings `closing`, a mark of tool calls, ends a call, too.
    """

    def __init__(self, closing: str) -> None:
        self._closing = closing
        self._depth = 1
        self._in_string = False
        self._escaped = False
        self._in_arguments = True

    def read(self, text: str) -> tuple[str, int | None]:
        """Return what of the next text are arguments, and where the call ends in it; None if it does not."""
        end_of_arguments = len(text) if self._in_arguments else 0
        for i, character in enumerate(text):
            if self._in_string:
                self._read_in_string(character)
            elif character == self._closing[:1]:
                return text[: min(i, end_of_arguments)], i
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._in_arguments and self._depth == 1:
                    self._in_arguments, end_of_arguments = False, i + 1
                if self._depth == 0:
                    return text[:end_of_arguments], i + 1
        return text[:end_of_arguments], None

    def _read_in_string(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = False
