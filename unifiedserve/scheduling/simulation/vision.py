"""Run the vision worker in numbers: requests that are admitted, and engines that decode their segments."""

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial

from unifiedserve.config import Order
from unifiedserve.messages.costs import Costs
from unifiedserve.placement import Instance, Placement, Stage
from unifiedserve.scheduling.rolling import Rolling
from unifiedserve.scheduling.simulation.clock import Action
from unifiedserve.scheduling.simulation.request import Request
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.turn import Begin, Decoded, Event, Neighbours, Ready
from unifiedserve.scheduling.turn.vision import MediaCame, MediaLeft, MediaTook, VisionFacts, VisionTurn
from unifiedserve.scheduling.vision import BufferPages

_SHARE = 2  # a segment is that part of what is left, for each engine


@dataclass(slots=True, eq=False)
class _Job:
    """Track a request in the stage. Its segments, ranges of units, are cut when its media have been analysed."""

    request: Request
    units_left: int
    segments: deque[range] = field(default_factory=deque)  # that nobody decodes
    turn: float = 0.0  # seconds
    rolling: Rolling | None = None


class VisionWorker:
    """Decode the media of admitted requests. Segments of videos go to engines (UnifiedServe Alg. 2), images beside."""

    def __init__(self, instance: Instance, engines: int, system: System, order: Order) -> None:
        self.costs = Costs()
        self._instance = instance
        self._engines = engines
        self._idle = engines
        self._system = system
        self._jobs: dict[int, _Job] = {}
        self._turn = VisionTurn(order)
        self._losses: list[tuple[Collection[int], Action]] = []  # to be forgotten
        self._has_told = False  # that there is nothing here
        self._neighbours = Neighbours(system.placement, instance.name, system.status)
        system.takers[instance.name] = self._take_back

    @property
    def decoding(self) -> Collection[int]:
        return ()

    def leave(self) -> list[Event]:
        self._jobs.clear()
        for _, heard in self._losses:
            heard()
        return []

    def forget(self, uids: Collection[int], heard: Action) -> None:
        self._losses.append((uids, heard))

    def _forget(self) -> None:
        losses, self._losses = self._losses, []
        for uids, heard in losses:
            for uid in uids:
                self._jobs.pop(uid, None)
                self._turn.note(MediaLeft(uid))
            heard()

    def receive(self, event: Event) -> None:
        if isinstance(event, Begin):
            request = self._system.requests[event.ticket.uid]
            memory = self._system.placement.memory_of(event.ticket.route.encode[0])
            self._turn.note(MediaCame(request.ticket, *self._system.media_pages(request), memory))
            self._jobs[event.ticket.uid] = job = _Job(request, len(request.arrival.units))
            if request.window:
                patch = request.arrival.patch_pages
                needs = (BufferPages(patch, self._system.visual_pages(unit)) for unit in request.arrival.units)
                job.rolling = Rolling(request.window, enumerate(needs))

    def hand_over(self, heirs: Iterator[str]) -> None:
        """Do nothing: it decodes no answers."""

    def placed(self, placement: Placement) -> None:
        self._neighbours.placed(placement)

    def turn(self) -> None:
        system = self._system
        self._forget()
        if not self._jobs and self._has_told:
            return
        self._has_told = not self._jobs
        system.settle(self._instance.name)
        encoders = self._system.placement.hosts(Stage.ENCODE)
        memories = {system.placement.memory_of(encoder): system.free_of(encoder) for encoder in encoders}
        free = {memory: BufferPages(pages.patch, pages.visual) for memory, pages in memories.items()}
        decision = self._turn.take(VisionFacts(system.clock.now, free, self._neighbours.first_of_vision()))
        for uid, turn in decision.turns.items():
            self._jobs[uid].turn = turn
        for uid in decision.admit:
            self._begin(self._jobs[uid])
        self._neighbours.tell(decision.tells)
        for memory in self._neighbours.tell_first(decision.first):
            system.freed(Stage.VISION, memory, self)
        system.set_alarm(self, decision.wait_until)

    def _begin(self, job: _Job) -> None:
        self._turn.note(MediaTook(job.request.ticket.uid))
        patch, visual = self._system.media_pages(job.request)
        free = self._system.free_of(job.request.ticket.route.encode[0])
        job.request.take(free, patch=patch, visual=visual)
        assert min(free.patch, free.visual) >= 0, "more is let in than has pages"
        if job.rolling:
            job.rolling.take(range(patch), range(visual))
        self._system.waits.begun(job.request.ticket.uid, Stage.VISION, self._system.clock.now)
        analysed = partial(self._analysed, job)
        self._system.run_on_host(self._instance, Stage.VISION, self._system.costs.analysis, analysed)

    def _analysed(self, job: _Job) -> None:
        if job.request.lost:
            return
        if job.rolling:
            self._roll(job, job.rolling)
        else:
            self._decode_all(job, range(len(job.request.arrival.units)))

    def _roll(self, job: _Job, rolling: Rolling) -> None:
        """Decode the next units of a window, as far as there are pages for them."""
        while rolling.give():
            pass
        if units := rolling.begin():
            self._decode_all(job, range(units[0], units[-1] + 1))
        if rolling.given_out:
            self._release_room(job.request, *map(len, rolling.leave()))

    def _take_back(self, uid: int, patch: int, visual: int) -> None:
        """Take back pages of a window, whose units are done with them."""
        job = self._jobs.get(uid)
        if job and job.rolling and not job.rolling.given_out:
            job.rolling.take_back([0] * patch, [0] * visual)
            self._roll(job, job.rolling)
        else:
            self._release_room(self._system.requests[uid], patch, visual)

    def _release_room(self, request: Request, patch: int, visual: int) -> None:
        encoder = request.ticket.route.encode[0]
        free = self._system.free_of(encoder)
        request.take(free, patch=-patch, visual=-visual)
        self._system.freed(Stage.VISION, self._system.placement.memory_of(encoder), self)
        self._system.wake(self)

    def _decode_all(self, job: _Job, units: range) -> None:
        if gop := job.request.arrival.gop:
            job.segments.extend(self._cut(units, gop))
            self._assign()
        else:
            for image in units:
                self._decode(job, range(image, image + 1))

    def _cut(self, units: range, gop: int) -> Iterator[range]:
        """Yield segments of whole GOPs, ever smaller towards the end (guided self-scheduling, as FlashCodec's)."""
        while units:
            gops = -(-len(units) // gop)
            count = -(-gops // (_SHARE * self._engines)) * gop
            yield units[:count]
            units = units[count:]

    def _assign(self) -> None:
        """Let idle engines take segments of the request whose turn comes first."""
        while self._idle and (waiting := [job for job in self._jobs.values() if job.segments]):
            job = min(waiting, key=lambda job: (job.request.ticket.priority, job.turn))
            self._idle -= 1
            self._decode(job, job.segments.popleft())

    def _decode(self, job: _Job, segment: range) -> None:
        seconds, decoded = job.request.arrival.decode, partial(self._decoded, job, segment)
        if job.request.arrival.gop:
            self._system.run(self._instance, Stage.VISION, 1, seconds, decoded)
        else:
            self._system.run_on_host(self._instance, Stage.VISION, seconds, decoded)

    def _decoded(self, job: _Job, segment: range) -> None:
        """Pass on the patches of a segment's first unit.

        The engine goes on with the rest, or with the first in turn.
        """
        if not job.request.lost:
            self._pass_on(job, segment[0])
        if job.request.arrival.gop:
            if len(segment) > 1 and not job.request.lost:
                job.segments.appendleft(segment[1:])
            self._idle += 1
            self._assign()

    def _pass_on(self, job: _Job, unit: int) -> None:
        uid, encoders = job.request.ticket.uid, job.request.ticket.route.encode
        chosen = self._system.status.least_pending(encoders)
        self._system.waits.ready(uid, Stage.ENCODE, self._system.clock.now)
        self._system.status.give(chosen, uid, job.request.arrival.patch_pages)
        self._system.send(chosen, Ready(uid, unit))
        job.units_left -= 1
        if not job.units_left:
            del self._jobs[uid]
            self._turn.note(MediaLeft(uid))
            for encoder in encoders:
                self._system.send(encoder, Decoded(uid))
        self._system.wake(self)
