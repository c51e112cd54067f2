"""Count the sequences in a simulated worker, and the pages that they hold."""

from collections.abc import Sequence
from dataclasses import replace

from unifiedserve.scheduling.simulation.arrival import FreePages
from unifiedserve.scheduling.simulation.request import Request
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import DecodeState
from unifiedserve.scheduling.turn import Key, Streamed


class Sequences:
    """Take pages for the answers that decode, and give them back."""

    def __init__(self, system: System, free: FreePages) -> None:
        """Take pages of the memory in which these are `free`."""
        self._system = system
        self._free = free
        self._states: dict[Key, DecodeState] = {}

    def __len__(self) -> int:
        return len(self._states)

    @property
    def uids(self) -> set[int]:
        """Return the requests that are decoded here."""
        return {uid for uid, _ in self._states}

    def begin(self, state: DecodeState) -> None:
        """Take over an answer and the pages that it holds."""
        self._states[state.key] = replace(state)

    def give_up(self) -> list[DecodeState]:
        """Forget all answers, and return them with the pages that they hold."""
        states, self._states = list(self._states.values()), {}
        return states

    def steps(self, keys: Sequence[Key]) -> int:
        """Return how many steps these can take together before one ends or pages run out."""
        steps = min(self._system.requests[uid].left for uid, _ in keys)
        states = [self._states[key] for key in keys]
        growth = sum(self._system.kv_pages(state.num_tokens + steps - 1) - state.pages for state in states)
        return steps if growth <= self._free.kv else 1

    def context(self, keys: Sequence[Key]) -> int:
        """Return how many tokens these attend to in their next step."""
        return sum(self._states[key].num_tokens for key in keys)

    def grow(self, keys: Sequence[Key], steps: int) -> None:
        """Take the pages that these need for their next steps."""
        for key in keys:
            state = self._states[key]
            grown = self._system.kv_pages(state.num_tokens + steps - 1)
            if grown > state.pages:
                self._system.requests[key[0]].take(self._free, kv=grown - state.pages)
                state.pages = grown
        assert self._free.kv >= 0, "more sequences run than have pages"

    def advance(self, keys: Sequence[Key], times: Sequence[float]) -> list[Streamed]:
        """Count tokens that came at these times (seconds) for each; return those that have not ended."""
        streams = []
        for key in keys:
            state = self._states[key]
            state.num_tokens += len(times)
            if self._system.tokens(self._system.requests[key[0]], times):
                self.drop(key)
            else:
                streams.append(Streamed(key, state.num_tokens, state.pages))
        return streams

    def drop(self, key: Key) -> Request:
        """Forget an answer and give back what it holds."""
        request = self._system.requests[key[0]]
        self._system.release(self._free, request, self._states.pop(key).pages)
        return request
