"""Read from other memories: it takes pages here, then time, and frees pages of its source."""

from collections.abc import Callable, Sequence
from functools import partial

from unifiedserve.placement import Stage
from unifiedserve.scheduling.simulation.system import System, Worker
from unifiedserve.scheduling.state import DecodeState, Pull
from unifiedserve.scheduling.turn import Encoded, Event, Handed, Note, Pulling


class Pulls:
    """Take pages for what is read. The cores have nothing to do with it."""

    def __init__(self, host: str, system: System, note: Note, receive: Callable[[Event], None]) -> None:
        """Let the worker of `host` receive what has been read."""
        self._system = system
        self._free = system.free_of(host)
        self._note = note
        self._receive = receive
        self._roomy: set[int] = set()  # uids of the prompts that have pages for all of their units
        self._early: dict[int, list[tuple[int, float]]] = {}  # pages, and when they will be read (seconds), by uid

    def forget(self, uid: int) -> None:
        """Note that a request begins, maybe once more: it has no pages here."""
        self._roomy.discard(uid)

    def drop(self, uid: int) -> None:
        """Forget what is here of a request; its pages are another's to give back."""
        self._roomy.discard(uid)
        self._early.pop(uid, None)

    def forgo(self, uid: int) -> None:
        """Give back what was read early of a request."""
        early = sum(pages for pages, _ in self._early.pop(uid, []))
        self._system.requests[uid].take(self._free, kv=-early)

    def forgo_all(self) -> None:
        """Give back all that was read early."""
        for uid in list(self._early):
            self.forgo(uid)

    def begin(self, pull: Pull, worker: Worker) -> None:
        """Begin to read units of a prompt, or the answer of a request."""
        self._note(Pulling(*pull))
        if pull.early:
            self._read_early(pull.uid, pull.early)
        elif pull.units:
            self._read_units(pull.uid, pull.units, worker)
        else:
            self._read_answer(pull.uid, worker)
        assert min(self._free.kv, self._free.visual) >= 0, "more is read than has pages"

    def _read_units(self, uid: int, units: Sequence[int], worker: Worker) -> None:
        request, system = self._system.requests[uid], self._system
        if uid not in self._roomy:
            self._roomy.add(uid)
            request.take(self._free, visual=sum(map(system.visual_pages, request.arrival.units)))
        pages = sum(system.visual_pages(request.arrival.units[unit]) for unit in units)
        system.clock.after(system.pull_seconds(visual_pages=pages), partial(self._end_units, uid, units, pages, worker))

    def _end_units(self, uid: int, units: Sequence[int], pages: int, worker: Worker) -> None:
        request = self._system.requests[uid]
        if request.lost:
            return
        request.take(self._system.free_of(request.ticket.route.encode[0]), visual=-pages)
        for unit in units:
            self._receive(Encoded(uid, unit))
        self._tell(request.ticket.route.encode[0], worker)

    def _read_early(self, uid: int, pages: int) -> None:
        self._system.requests[uid].take(self._free, kv=pages)
        read = self._system.clock.now + self._system.pull_seconds(pages)
        self._early.setdefault(uid, []).append((pages, read))

    def _read_answer(self, uid: int, worker: Worker) -> None:
        request, system = self._system.requests[uid], self._system
        kv, kept = request.shape.kv_pages, system.kept_pages(request)
        early = self._early.pop(uid, [])
        request.take(self._free, kv=kv - sum(pages for pages, _ in early), visual=kept)
        left = kv - sum(pages for pages, read in early if read <= system.clock.now)
        system.clock.after(system.pull_seconds(left, kept), partial(self._end_answer, uid, kv, worker))

    def _end_answer(self, uid: int, kv: int, worker: Worker) -> None:
        request, system = self._system.requests[uid], self._system
        if request.lost:
            return
        system.release(system.free_of(request.ticket.route.prefill), request, kv)
        self._receive(Handed(DecodeState(request.ticket, 0, request.shape.tokens + 1, kv)))
        self._tell(request.ticket.route.prefill, worker)

    def _tell(self, source: str, worker: Worker) -> None:
        """Give the worker a turn, and wake those that want pages of its source."""
        system, memory = self._system, self._system.placement.memory_of(source)
        system.wake(worker)
        for stage in (Stage.VISION, Stage.PREFILL):
            system.clock.after(system.costs.message, partial(system.freed, stage, memory, worker))
