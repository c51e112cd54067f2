"""The vision worker in numbers: requests that are admitted, and engines that decode their segments."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from unifiedserve.config import Order
from unifiedserve.messages.costs import Costs
from unifiedserve.placement import Instance, Stage
from unifiedserve.scheduling.queue import Queue
from unifiedserve.scheduling.simulation.request import Request
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import VisionState
from unifiedserve.scheduling.turn import Begin, Event, Ready
from unifiedserve.scheduling.vision import schedule_vision

_SHARE = 2  # a segment is that part of what is left, for each engine
_TURN = 1.0  # seconds of each engine that a request gets before others


@dataclass(slots=True, eq=False)
class _Job:
    """A request in the stage. Its segments, ranges of units, are cut when its media have been analysed."""

    request: Request
    state: VisionState
    segments: deque[range] = field(default_factory=deque)
    turn: float = 0.0  # what the engines were given of it since its turn began (seconds)


class VisionWorker:
    """Decodes the media of admitted requests: segments of videos on engines (UnifiedServe Alg. 2), images beside."""

    def __init__(self, instance: Instance, engines: int, system: System, order: Order) -> None:
        self.costs = Costs()
        self._instance = instance
        self._engines = engines
        self._idle = engines
        self._system = system
        self._jobs: dict[int, _Job] = {}
        self._queue: Queue[VisionState] = Queue(order)
        self._segmented: deque[_Job] = deque()  # with segments that nobody decodes

    def receive(self, event: Event) -> None:
        if isinstance(event, Begin):
            request = self._system.requests[event.ticket.uid]
            state = VisionState(request.ticket, len(request.arrival.units) * request.arrival.patch_pages)
            self._queue.add(state)
            self._jobs[event.ticket.uid] = _Job(request, state)

    def turn(self) -> None:
        states = self._queue.in_turn(self._system.clock.now)
        promised = sum(state.pages for state in states if state.admitted)
        for uid in schedule_vision(states, self._system.free.patch - promised):
            self._begin(self._jobs[uid])
        self._system.status.set_working(self._instance.name, Stage.VISION, any(state.admitted for state in states))

    def _begin(self, job: _Job) -> None:
        job.state.admit()
        self._system.run(self._instance, 1, self._system.costs.analysis, partial(self._analysed, job))

    def _analysed(self, job: _Job) -> None:
        arrival = job.request.arrival
        if arrival.gop:
            job.segments.extend(self._cut(len(arrival.units), arrival.gop))
            self._segmented.append(job)
            self._assign()
        else:
            for image in range(len(arrival.units)):
                self._decode(job, range(image, image + 1))

    def _cut(self, units: int, gop: int) -> Iterator[range]:
        """Yield segments of whole GOPs, ever smaller towards the end (guided self-scheduling, as FlashCodec's)."""
        start = 0
        while start < units:
            gops = -(-(units - start) // gop)
            stop = min(units, start + -(-gops // (_SHARE * self._engines)) * gop)
            yield range(start, stop)
            start = stop

    def _assign(self) -> None:
        """Let idle engines take segments, of the first request until its turn is over."""
        while self._idle and self._segmented:
            job = self._segmented[0]
            segment = job.segments.popleft()
            job.turn += len(segment) * job.request.arrival.decode
            if not job.segments:
                self._segmented.popleft()
            elif job.turn >= _TURN * self._engines:
                job.turn = 0.0
                self._segmented.rotate(-1)
            self._idle -= 1
            self._decode(job, segment)

    def _decode(self, job: _Job, segment: range) -> None:
        self._system.run(self._instance, 1, job.request.arrival.decode, partial(self._decoded, job, segment))

    def _decoded(self, job: _Job, segment: range) -> None:
        """Pass on the patches of a segment's first unit, and go on with the rest of it."""
        pages = job.request.arrival.patch_pages
        self._system.free.patch -= pages
        assert self._system.free.patch >= 0, "pages that were promised are gone"
        job.state.pages -= pages
        if not job.state.pages:
            self._queue.remove(job.state)
            del self._jobs[job.state.ticket.uid]
        self._system.send(job.request.ticket.route.encode, Ready(job.state.ticket.uid, segment[0]))
        self._system.wake(self)
        if len(segment) > 1:
            self._decode(job, segment[1:])
        elif job.request.arrival.gop:
            self._idle += 1
            self._assign()
