"""The sequences in a simulated worker, and the pages that they hold (as `worker/language/decode.py`)."""

from collections.abc import Sequence

from unifiedserve.scheduling.simulation.messages import Request
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import DecodeState

Key = tuple[int, int]


class Sequences:
    """Owns the answers that decode."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._requests: dict[int, Request] = {}
        self._states: dict[int, DecodeState] = {}

    @property
    def states(self) -> list[DecodeState]:
        """Return what the scheduler sees of them, by their turns."""
        return list(self._states.values())

    def begin(self, request: Request, state: DecodeState) -> None:
        """Take over a request and the pages that it holds."""
        self._requests[request.uid], self._states[request.uid] = request, state
        self._states = dict(sorted(self._states.items(), key=lambda item: item[1].turn))

    def steps(self, keys: Sequence[Key]) -> int:
        """Return how many steps these can take together before one of them ends or pages run out."""
        steps = min(self._requests[uid].left for uid, _ in keys)
        states = [self._states[uid] for uid, _ in keys]
        growth = sum(self._system.kv_pages(state.num_tokens + steps - 1) - state.pages for state in states)
        return steps if growth <= self._system.free.kv else 1

    def context(self, keys: Sequence[Key]) -> int:
        """Return how many tokens these attend to in their next step."""
        return sum(self._states[uid].num_tokens for uid, _ in keys)

    def grow(self, keys: Sequence[Key], steps: int) -> None:
        """Take the pages that these need for their next steps."""
        for uid, _ in keys:
            state = self._states[uid]
            grown = self._system.kv_pages(state.num_tokens + steps - 1)
            self._system.free.kv -= grown - state.pages
            state.pages = grown
        assert self._system.free.kv >= 0, "more sequences run than have pages"

    def advance(self, keys: Sequence[Key], times: Sequence[float]) -> bool:
        """Count tokens that came at these times (seconds) for each; return whether they were the last for any."""
        ended = False
        for uid, _ in keys:
            self._states[uid].num_tokens += len(times)
            if self._system.tokens(self._requests[uid], times):
                self.drop(uid)
                ended = True
        return ended

    def drop(self, uid: int) -> Request:
        """Forget a sequence and give back what it holds."""
        request = self._requests.pop(uid)
        self._system.release(request, self._states.pop(uid))
        return request
