"""Count the sequences that an instance decodes."""

from collections.abc import Iterable

from unifiedserve.scheduling.state import DecodeState
from unifiedserve.scheduling.turn.facts import Key, Streamed


class Sequences:
    """Own the answers that decode, by their turns."""

    def __init__(self) -> None:
        self._states: dict[Key, DecodeState] = {}
        self._resting: set[Key] = set()

    def __len__(self) -> int:
        return len(self._states)

    def in_turn(self) -> list[DecodeState]:
        """Return what the scheduler sees of those that go on."""
        if not self._resting:
            return list(self._states.values())
        return [state for key, state in self._states.items() if key not in self._resting]

    def begin(self, state: DecodeState) -> None:
        """Take an answer in."""
        self._states[state.key] = state
        self._states = dict(sorted(self._states.items(), key=lambda item: item[1].turn))

    def advance(self, streams: Iterable[Streamed]) -> None:
        """Note how these are now, as far as they are here."""
        for key, tokens, pages, rests in streams:
            if state := self._states.get(key):
                state.num_tokens, state.pages = tokens, pages
                if rests:
                    self._resting.add(key)
                elif self._resting:
                    self._resting.discard(key)

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget answers, as far as they are here."""
        for key in keys:
            self._states.pop(key, None)
            self._resting.discard(key)

    def of(self, uid: int, answer: int | None) -> list[Key]:
        """Return an answer of a request, or all of them (None)."""
        return [key for key in self._states if key[0] == uid and answer in (None, key[1])]
