"""The sequences that an instance decodes, in numbers."""

from collections.abc import Iterable

from unifiedserve.scheduling.state import DecodeState
from unifiedserve.scheduling.turn.facts import Key, Streamed


class Sequences:
    """Owns the answers that decode, by their turns."""

    def __init__(self) -> None:
        self._states: dict[Key, DecodeState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def in_turn(self) -> list[DecodeState]:
        """Return what the scheduler sees of them."""
        return list(self._states.values())

    def begin(self, state: DecodeState) -> None:
        """Take an answer in."""
        self._states[state.key] = state
        self._states = dict(sorted(self._states.items(), key=lambda item: item[1].turn))

    def advance(self, streams: Iterable[Streamed]) -> None:
        """Note what a pass has given them."""
        for key, tokens, pages, ended in streams:
            if ended:
                self.drop(key)
            elif state := self._states.get(key):
                state.num_tokens += tokens
                state.pages = pages

    def drop(self, key: Key) -> None:
        """Forget an answer, if it is here."""
        self._states.pop(key, None)
