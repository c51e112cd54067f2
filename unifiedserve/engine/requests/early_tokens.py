"""Order tokens that came early: the first one of an answer comes from prefill, the next from decode."""

from unifiedserve.messages.wire import Token


class EarlyTokens:
    """Hold the tokens of one answer that wait for those before them."""

    def __init__(self) -> None:
        self._waiting: dict[int, Token] = {}  # by number

    def ready(self, token: Token, number: int) -> list[Token]:
        """Take `token` and return those whose turn it is, from `number` on; one that was there before gives none."""
        if token.number >= number:
            self._waiting[token.number] = token
        ready = []
        while number in self._waiting:
            ready.append(self._waiting.pop(number))
            number += 1
        return ready

    def clear(self) -> None:
        """Drop the tokens of an attempt that is being replaced."""
        self._waiting.clear()
