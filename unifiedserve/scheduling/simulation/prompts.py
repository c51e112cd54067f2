"""Count the pages that prompts hold in a simulated worker."""

from collections import defaultdict

from unifiedserve.scheduling.simulation.arrival import FreePages
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import Chunk
from unifiedserve.scheduling.turn import UnitShape


class Prompts:
    """Take pages for prompts, and give them back. The plan knows whether there are any."""

    def __init__(self, system: System, free: FreePages) -> None:
        """Take pages of the memory in which these are `free`."""
        self._system = system
        self._free = free
        self._prefilled: dict[int, int] = {}  # tokens of those that have their KV pages
        self._filled: dict[int, int] = {}  # of their full pages, how many were asked for
        self._held: dict[int, list[UnitShape]] = defaultdict(list)  # units whose visual tokens are here

    def admit(self, uid: int) -> bool:
        """Take a request's KV pages; return whether it had none."""
        if uid in self._prefilled:
            return False
        self._prefilled[uid] = self._filled[uid] = 0
        request = self._system.requests[uid]
        request.take(self._free, kv=request.shape.kv_pages)
        assert self._free.kv >= 0, "more prompts are let in than have pages"
        return True

    def encode(self, uid: int, instance: str) -> None:
        """Encode a unit in an instance: its patches leave their buffer."""
        request = self._system.requests[uid]
        pages = request.arrival.patch_pages
        self._system.give_back(self._free, request, patch=pages)
        self._system.status.encoded(instance, uid, pages)

    def forget(self, uid: int) -> None:
        """Forget a prompt, if it is here; its pages are another's to give back."""
        self._prefilled.pop(uid, None)
        self._filled.pop(uid, None)
        self._held.pop(uid, None)

    def take_encoded(self, uid: int, unit: int) -> None:
        """Take over a unit's visual tokens, wherever they were encoded."""
        self._held[uid].append(self._system.requests[uid].shape.units[unit])

    def filled(self, uid: int) -> int:
        """Return how many of a prompt's KV pages have filled since the last call."""
        before, self._filled[uid] = self._filled[uid], self._system.full_pages(self._prefilled[uid])
        return self._filled[uid] - before

    def prefill(self, chunk: Chunk) -> bool:
        """Prefill a chunk: visual tokens leave, unless answers need them; return whether it was the last one."""
        shape = self._system.requests[chunk.uid].shape
        assert self._prefilled[chunk.uid] == chunk.start < chunk.stop, "a chunk leaves tokens out"
        inside = any(unit.position < chunk.stop < unit.position + unit.tokens for unit in shape.units)
        assert not (shape.whole_units and inside), "a chunk ends within a unit"
        self._prefilled[chunk.uid] = chunk.stop
        if not self._system.rules.keeps_visual:
            held = self._held[chunk.uid]
            self._held[chunk.uid] = [unit for unit in held if unit.position + unit.tokens > chunk.stop]
            left = [unit for unit in held if unit.position + unit.tokens <= chunk.stop]
            pages = sum(self._system.visual_pages(unit.tokens) for unit in left)
            self._system.give_back(self._free, self._system.requests[chunk.uid], visual=pages)
        if chunk.stop < shape.tokens:
            return False
        self.forget(chunk.uid)
        return True
