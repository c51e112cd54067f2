"""The sequences in a simulated worker, and the pages that they hold (as `worker/language/decode.py`)."""

from collections.abc import Iterable

from unifiedserve.scheduling.simulation.messages import Request
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import DecodeState


class Sequences:
    """Owns the answers that decode."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._requests: dict[int, Request] = {}
        self._states: dict[int, DecodeState] = {}

    @property
    def states(self) -> list[DecodeState]:
        """Return what the scheduler sees of them."""
        return list(self._states.values())

    def begin(self, request: Request, state: DecodeState) -> None:
        """Take over a request and the pages that it holds."""
        self._requests[request.uid], self._states[request.uid] = request, state

    def grow(self, keys: Iterable[tuple[int, int]]) -> int:
        """Take the pages that these need for their next step; return their context."""
        context = 0
        for uid, _ in keys:
            state = self._states[uid]
            context += state.num_tokens
            grown = self._system.kv_pages(state.num_tokens)
            self._system.free.kv -= grown - state.pages
            state.pages = grown
        assert self._system.free.kv >= 0, "more sequences run than have pages"
        return context

    def advance(self, uid: int) -> bool:
        """Count a token more; return whether that was the last."""
        self._states[uid].num_tokens += 1
        ended = self._system.token(self._requests[uid])
        if ended:
            self.drop(uid)
        return ended

    def drop(self, uid: int) -> Request:
        """Forget a sequence and give back what it holds."""
        request = self._requests.pop(uid)
        self._system.release(request, self._states.pop(uid))
        return request
