"""The vision worker in numbers: requests that are admitted, and engines that decode their segments."""

from collections import deque
from dataclasses import dataclass, field
from functools import partial

from unifiedserve.config import Instance, Stage
from unifiedserve.scheduling.simulation.messages import Begin, Message, Patches, Request
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import VisionState
from unifiedserve.scheduling.vision import schedule_vision


@dataclass(slots=True, eq=False)
class _Job:
    """A request in the stage. Its segments, ranges of units, are cut when its media have been analysed."""

    request: Request
    state: VisionState
    segments: deque[range] = field(default_factory=deque)


class VisionWorker:
    """Decodes the media of admitted requests, segments of several at once (UnifiedServe Alg. 2)."""

    def __init__(self, instance: Instance, engines: int, system: System) -> None:
        self._instance = instance
        self._engines = engines
        self._idle = engines
        self._system = system
        self._jobs: dict[int, _Job] = {}
        self._queue: deque[_Job] = deque()  # with segments that nobody decodes

    def receive(self, message: Message) -> None:
        self.accept(message)  # its loop never computes

    def accept(self, message: Message) -> None:
        if isinstance(message, Begin):
            arrival = message.request.arrival
            state = VisionState(arrival.ticket, len(arrival.units) * arrival.patch_pages)
            self._jobs[arrival.ticket.uid] = _Job(message.request, state)

    def turn(self) -> None:
        states = sorted((job.state for job in self._jobs.values()), key=lambda state: state.ticket.turn)
        promised = sum(state.pages for state in states if state.admitted)
        for uid in schedule_vision(states, self._system.free.patch - promised):
            self._begin(self._jobs[uid])
        self._system.status.working[Stage.VISION] = any(state.admitted for state in states)

    def _begin(self, job: _Job) -> None:
        job.state.admitted = True
        self._system.run(self._instance, 1, self._system.costs.analysis, partial(self._analysed, job))

    def _analysed(self, job: _Job) -> None:
        """Cut segments of whole GOPs, ever smaller towards the end, as FlashCodec does (guided self-scheduling)."""
        arrival, start = job.request.arrival, 0
        while start < len(arrival.units):
            gops = -(-(len(arrival.units) - start) // arrival.gop)
            stop = min(len(arrival.units), start + -(-gops // (2 * self._engines)) * arrival.gop)
            job.segments.append(range(start, stop))
            start = stop
        self._queue.append(job)
        self._assign()

    def _assign(self) -> None:
        """Let idle engines take segments, of the requests in turns."""
        while self._idle and self._queue:
            job = self._queue.popleft()
            self._idle -= 1
            self._decode(job, job.segments.popleft())
            if job.segments:
                self._queue.append(job)

    def _decode(self, job: _Job, segment: range) -> None:
        self._system.run(self._instance, 1, job.request.arrival.decode, partial(self._decoded, job, segment))

    def _decoded(self, job: _Job, segment: range) -> None:
        """Pass on the patches of a segment's first unit, and go on with the rest of it."""
        pages = job.request.arrival.patch_pages
        self._system.free.patch -= pages
        assert self._system.free.patch >= 0, "pages that were promised are gone"
        job.state.pages -= pages
        if not job.state.pages:
            del self._jobs[job.request.uid]
        self._system.send(Stage.ENCODE, Patches(job.request.uid, segment[0]))
        self._system.wake(self)
        if len(segment) > 1:
            self._decode(job, segment[1:])
        else:
            self._idle += 1
            self._assign()
