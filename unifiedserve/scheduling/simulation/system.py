"""Hold what all workers of a simulated engine share: time, machine, messages, pages, notes to each other."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import cycle
from typing import Protocol

import msgspec

from unifiedserve.messages.costs import Costs
from unifiedserve.messages.load import EngineLoad
from unifiedserve.messages.pages import Window
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import ChangingPlacement, Instance, Placement, Route, Stage, choose_route
from unifiedserve.scheduling.simulation.arrival import FreePages, Rules
from unifiedserve.scheduling.simulation.clock import Action, Clock
from unifiedserve.scheduling.simulation.machine import Demand, Machine, Task
from unifiedserve.scheduling.simulation.request import Request
from unifiedserve.scheduling.simulation.status import Status
from unifiedserve.scheduling.simulation.waits import Waits
from unifiedserve.scheduling.stage_costs import StageCosts
from unifiedserve.scheduling.targets import Targets
from unifiedserve.scheduling.turn import (
    AnswersOffered,
    Begin,
    Decoded,
    Encoded,
    Event,
    Handed,
    PagesFilled,
    Ready,
    Shape,
    Stopped,
    UnitOffered,
    UnitShape,
)
from unifiedserve.scheduling.vision import BufferPages, window_of


@cache
def _demand(threads: int, nice: int, cores: tuple[int, ...], stage: Stage | None, device: int | None) -> Demand:
    """Return the same object for the same demand: rates are looked up by it."""
    return Demand(threads, nice, cores, stage, device)


class Worker(Protocol):
    """Run some of the stages as one process. It takes messages in only at its turns, when it is not busy."""

    @property
    def costs(self) -> Costs:
        """Return what its steps have taken lately."""

    def receive(self, event: Event) -> None:
        """Keep an event for the next turn."""

    @property
    def decoding(self) -> Collection[int]:
        """Return the uids of the requests that it decodes."""

    def leave(self) -> list[Event]:
        """Die. Return what its successor takes in first: the answers that go on there, and events it has not seen."""

    def forget(self, uids: Collection[int], heard: Action) -> None:
        """Forget these requests before the next turn, and say so."""

    def hand_over(self, heirs: Iterator[str]) -> None:
        """Have these hosts go on with all answers from the next turn on."""

    def placed(self, placement: Placement) -> None:
        """Look at the instances of this placement from now on."""

    def turn(self) -> None:
        """Plan and begin the next step, if there is none under way."""


@dataclass(slots=True)
class Travel:
    """Count pages read from other memories, the reads, and their seconds in all."""

    reads: int = 0
    kv_pages: int = 0
    visual_pages: int = 0
    seconds: float = 0.0


class Stretching(Protocol):
    """Run a worker whose steps go on by themselves until something happens."""

    def settle(self) -> None:
        """Note the steps that are over, so that others see what they have come to."""

    def pages_to_take(self) -> int:
        """Return the most KV pages that the steps which go on may take."""

    def cut(self) -> None:
        """End the steps that go on with the one under way."""

    def is_near(self, name: str) -> bool:
        """Tell whether an instance and this one see each other: their pages, or what they tell of their work."""


class System:
    """Hold one engine: its workers by the stages that they host, its buffers and its machine."""

    def __init__(
        self,
        placement: Placement,
        machine: Machine,
        costs: StageCosts,
        free: FreePages,
        rules: Rules,
        page_tokens: int,
        targets: Targets | None,
        dual_streams: bool,
    ) -> None:
        self.roles = ChangingPlacement(placement)
        self.machine = machine
        self.costs = costs
        self.frees = {memory: replace(free) for memory in placement.memories}
        self._frees_of = {each.name: self.frees[each.memory] for each in placement.instances}
        self.kv_total = free.kv
        self._visual_page_tokens = free.visual_page_tokens
        self._buffers = BufferPages(free.patch, free.visual)
        self.takers: dict[str, Callable[[int, int, int], None]] = {}  # by instance: see `give_back`
        self.rules = rules
        self.dual_streams = dual_streams
        self._page_tokens = page_tokens
        self._targets = targets
        self.clock = Clock()
        self.known_until = float("inf")  # the time (seconds) up to which all arrivals are known
        self.status = Status()
        self.workers: dict[str, dict[Stage, Worker]] = {}  # by instance
        self.requests: dict[int, Request] = {}  # by uid
        self._under_way: dict[int, Request] = {}  # by uid: begun, and not ended
        self.travel = Travel()
        self.waits = Waits()
        self.stretching: dict[Stretching, FreePages] = {}  # with those of its memory
        self._gone: dict[Worker, Worker | None] = {}  # with their successors, if these go on with their messages
        self._starting: set[Worker] = set()
        self._ready: dict[Worker, None] = {}  # in the order in which they were woken
        self._alarms: dict[Worker, float] = {}  # when they want a turn by themselves (seconds)

    @property
    def placement(self) -> Placement:
        """Return the stages that each worker hosts now."""
        return self.roles.placement

    def run(
        self, instance: Instance, stage: Stage, threads: int, seconds: float, ended: Action, most: int | None = None
    ) -> Task:
        """Let an instance compute for a stage, on `most` cores at most. An action follows its end.

        Fewer cores than `threads` take longer in proportion.
        """
        own = min(instance.threads(threads), most or threads)
        device = self.placement.gpu_of(instance.memory)
        demand = _demand(own, instance.nice, instance.cores, stage, device)
        return self._start(instance, seconds * threads / own, demand, ended)

    def run_on_host(self, instance: Instance, stage: Stage | None, seconds: float, ended: Action) -> Task:
        """Let an instance compute on a core of the host. An action follows its end."""
        return self._start(instance, seconds, _demand(1, instance.nice, instance.cores, stage, None), ended)

    def _start(self, instance: Instance, seconds: float, demand: Demand, ended: Action) -> Task:
        task = Task(seconds, demand, ended, instance.name)
        self.machine.start(task)
        return task

    @staticmethod
    def slower(instance: Instance, threads: int) -> float:
        """Return how many times longer work takes an instance than so many threads."""
        return threads / instance.threads(threads)

    def free_of(self, host: str) -> FreePages:
        """Return the free pages of the memory of an instance."""
        return self._frees_of[host]

    def send(self, host: str, event: Event) -> None:
        """Send an event to the language stages of an instance."""
        of_answers = isinstance(event, Handed | AnswersOffered | PagesFilled | Stopped)
        stages = (Stage.DECODE,) if of_answers else (Stage.ENCODE, Stage.PREFILL)
        self._post(next(self.workers[host][stage] for stage in stages if stage in self.workers[host]), event)

    def freed(self, stage: Stage, memory: str, sender: Worker) -> None:
        """Wake a stage's hosts that may wait for pages of a memory, except the givers."""
        for host in self.placement.takers(stage, memory):
            if (worker := self.workers[host][stage]) is not sender:
                self._post(worker, None)

    def each_worker(self, name: str = "") -> Iterable[Worker]:
        """Return the workers, each once, of an instance or of all."""
        instances = [self.workers[name]] if name else self.workers.values()
        return dict.fromkeys(worker for stages in instances for worker in stages.values())

    def hand_over(self, name: str, hosts: Sequence[str]) -> None:
        """Let these hosts decode what was to be decoded by an instance."""
        heirs = cycle(hosts)
        for request in self.under_way():
            if request.ticket.route.decode == name and not (request.offered or request.decodes):
                self.reroute(request, next(heirs))
        for worker in self.each_worker(name):
            worker.hand_over(heirs)

    @staticmethod
    def reroute(request: Request, host: str) -> None:
        """Let a host decode a request."""
        route = request.ticket.route.decoded_by(host)
        request.ticket = msgspec.structs.replace(request.ticket, route=route)

    def install(self, name: str, workers: dict[Stage, Worker]) -> None:
        """Replace the workers of an instance, which have nothing to do any more."""
        for worker in self.each_worker(name):
            self.set_alarm(worker, float("inf"))
            self._gone[worker] = None
            self._ready.pop(worker, None)
        self.workers[name] = workers
        for worker in self.each_worker():
            worker.placed(self.placement)

    def inherit(self, name: str, dead: Mapping[Stage, Worker]) -> None:
        """Let the workers of an instance go on for those that have died, once `started`."""
        self._starting.update(self.each_worker(name))
        for before, after in {worker: self.workers[name][stage] for stage, worker in dead.items()}.items():
            self._gone[before] = after
            for event in before.leave():
                after.receive(event)

    def started(self, workers: Iterable[Worker]) -> None:
        """Note that workers are up."""
        for worker in workers:
            self._starting.discard(worker)
            self.wake(worker)

    def forget(self, worker: Worker, uids: Collection[int], heard: Action) -> None:
        """Have a worker, or its successor, forget requests before its next turn."""
        worker = self._present(worker)
        worker.forget(uids, heard)
        self.wake(worker)

    def lose(self, request: Request) -> None:
        """Note that something of a request was lost with a worker: nothing of it counts any more but its pages."""
        request.lost = True
        del self._under_way[request.ticket.uid]
        self.status.forget(request.ticket.uid)

    def anew(self, request: Request) -> Request:
        """Return what takes the place of a lost request."""
        uid = 1 + max(self.requests)
        self.requests[uid] = again = request.anew(uid)
        return again

    def is_lost(self, event: Event) -> bool:
        """Tell whether an event is of a request that lost something with a worker."""
        match event:
            case Begin(ticket) | PagesFilled(ticket):
                uid = ticket.uid
            case Handed(state):
                uid = state.ticket.uid
            case AnswersOffered(answers):
                uid = answers.ticket.uid
            case Ready(uid) | Decoded(uid) | Encoded(uid) | UnitOffered(uid) | Stopped(uid):
                pass
            case _:
                return False
        return self.requests[uid].lost

    def under_way(self) -> Iterable[Request]:
        """Return the requests that have begun and not ended."""
        return self._under_way.values()

    def serves(self, instance: str) -> bool:
        """Tell whether an instance has a part in any request."""
        return any(request.needs(instance) for request in self.under_way())

    @property
    def is_over(self) -> bool:
        """Tell whether nothing will happen any more by itself."""
        return not self._is_busy and self.clock.next == float("inf")

    def begin(self, request: Request) -> None:
        """Send a request to the workers: at first, or when it has lost its pages."""
        if self._targets:
            self.settle()
            request.ticket = self._ticket(request, self._targets)
        request.window = self._window(request)
        request.shape = self._shape(request)
        others = [each.load for each in self.under_way() if each is not request]
        route = choose_route(self.roles.open, others, media=bool(request.arrival.units))
        request.ticket = msgspec.structs.replace(request.ticket, route=route)
        self._under_way[request.ticket.uid] = request
        request.offered = request.decodes = request.prefilled = False
        first = Stage.VISION if request.arrival.units else Stage.PREFILL
        self.waits.ready(request.ticket.uid, first, self.clock.now)
        stages = (Stage.ENCODE, Stage.PREFILL, Stage.VISION) if request.arrival.units else (Stage.PREFILL,)
        workers = {self.workers[host][stage]: host for stage in stages for host in route.hosts(stage)}
        for worker, host in workers.items():
            here = host == route.prefill
            room = sum(map(self.visual_pages, request.arrival.units)) if here and self._units_travel(route) else 0
            shape = request.shape._replace(prefills_here=here, room_pages=room)
            self._post(worker, Begin(request.ticket, shape))

    def _units_travel(self, route: Route) -> bool:
        return any(self.travels(encoder, route.prefill) for encoder in route.encode)

    def _shape(self, request: Request) -> Shape:
        """Return what a request needs: tokens generated before a preemption are part of the prompt."""
        arrival, rules, position, units = request.arrival, self.rules, 0, []
        for gap, tokens in zip(arrival.gaps, arrival.units, strict=False):
            position += gap
            units.append(UnitShape(tokens, 0 if rules.keeps_visual else position))
            position += 0 if rules.keeps_visual else tokens
        total = position + arrival.gaps[-1] + len(request.tokens)
        window = request.window.half if request.window else 0
        return Shape(total, self.kv_pages(total), units, rules.whole_units, window=window)

    def _window(self, request: Request) -> Window | None:
        """Return the window that a request's media go through (as `engine/admission/buffers.py`)."""
        if len(self.frees) > 1 or self.rules.keeps_visual or not self.rules.overlap:
            return None
        patch = request.arrival.patch_pages
        return window_of([BufferPages(patch, self.visual_pages(unit)) for unit in request.arrival.units], self._buffers)

    def _ticket(self, request: Request, targets: Targets) -> Ticket:
        """Return its place in the queues (as `engine/requests/`): whose stream has begun owes its next token now."""
        for worker in self.each_worker():
            targets.learn(worker.costs)
        arrival, visual = request.arrival, sum(request.arrival.units)
        prompt = sum(arrival.gaps) + len(request.tokens) + (0 if self.rules.keeps_visual else visual)
        return targets.ticket(request.ticket, prompt, visual, visual, 0.0 if request.tokens else arrival.target)

    def load(self) -> EngineLoad:
        """Return how busy the engine is (as `engine/requests/arrivals.py`)."""
        there = list(self.under_way())
        waiting = [request for request in there if not request.tokens]
        tokens = Counter[Stage]()
        for request in waiting:
            tokens.update(request.load.left)
        return EngineLoad(
            in_flight=len(there),
            waiting=len(waiting),
            wait=sum(request.ticket.work for request in waiting),
            visual_tokens=tokens[Stage.ENCODE],
            prompt_tokens=tokens[Stage.PREFILL],
            streams=len(there) - len(waiting),
            kv_free=min(free.kv for free in self.frees.values()),
            kv_total=self.kv_total,
            costs=self._targets.costs if self._targets else Costs(),
        )

    def give_back(self, free: FreePages, request: Request, patch: int = 0, visual: int = 0) -> None:
        """Give back pages of media: those of a window to vision, for the next units, the others to waiting requests."""
        if request.window:
            take_back = self.takers[request.ticket.route.vision]
            self.clock.after(self.costs.message, partial(take_back, request.ticket.uid, patch, visual))
        else:
            request.take(free, patch=-patch, visual=-visual)

    def wake(self, worker: Worker) -> None:
        """Give a worker a turn after all that happens now. A worker that was replaced gets none."""
        if worker not in self._gone and worker not in self._starting:
            self._ready[worker] = None

    def set_alarm(self, worker: Worker, time: float) -> None:
        """Give a worker a turn at a time (seconds; infinity: never), in place of when it wanted one before."""
        if self._alarms.get(worker) != time:
            self._alarms[worker] = time
            if time < float("inf"):
                self.clock.at(time, partial(self._ring, worker, time))

    def _ring(self, worker: Worker, time: float) -> None:
        if self._alarms[worker] == time:
            self.wake(worker)

    def take_turns(self) -> None:
        """Give a turn to all that were woken."""
        while self._ready:
            worker = next(iter(self._ready))
            del self._ready[worker]
            worker.turn()

    def settle(self, name: str = "") -> None:
        """Have all note the steps that are over, or those that an instance sees."""
        for each in self.stretching:
            if not name or each.is_near(name):
                each.settle()

    def keep_pages(self, free: FreePages) -> None:
        """Let steps go on by themselves only where a memory's free pages suffice for all."""
        there = [each for each, pages in self.stretching.items() if pages is free]
        if there and sum(each.pages_to_take() for each in there) > free.kv:
            for each in there:
                each.cut()

    @property
    def quiet_until(self) -> float:
        """Return the time (seconds) before which only the worker whose turn it is acts."""
        return self.clock.now if self._is_busy else min(self.clock.next, self.known_until)

    @property
    def _is_busy(self) -> bool:
        return bool(len(self.machine) or self._ready)

    def tokens(self, request: Request, times: Iterable[float]) -> bool:
        """Note that a request got tokens, and when its client has them; return whether there was the last."""
        request.tokens += [time + self.costs.reply for time in times]
        if request.left:
            return False
        del self._under_way[request.ticket.uid]
        return True

    def pull_seconds(self, kv_pages: int = 0, visual_pages: int = 0) -> float:
        """Return what it takes to read so many pages, and count them."""
        costs, travel = self.costs, self.travel
        seconds = costs.pull + kv_pages * costs.pull_kv_page + visual_pages * costs.pull_visual_page
        travel.reads += 1
        travel.kv_pages += kv_pages
        travel.visual_pages += visual_pages
        travel.seconds += seconds
        return seconds

    def travels(self, source: str, target: str) -> bool:
        """Tell whether pages have to travel from one instance to another."""
        return self.free_of(source) is not self.free_of(target)

    def release(self, free: FreePages, request: Request, kv_pages: int) -> None:
        """Give back what an answer holds of a memory."""
        request.take(free, kv=-kv_pages, visual=-self.kept_pages(request))

    def kept_pages(self, request: Request) -> int:
        """Return how many pages of the visual buffer an answer holds."""
        return sum(map(self.visual_pages, request.arrival.units)) if self.rules.keeps_visual else 0

    def kv_pages(self, tokens: int) -> int:
        """Return how many pages of the KV cache so many tokens fill."""
        return -(-tokens // self._page_tokens)

    def full_pages(self, tokens: int) -> int:
        """Return how many pages of the KV cache are full with so many tokens."""
        return tokens // self._page_tokens

    def visual_pages(self, unit: int) -> int:
        """Return how many pages of the visual buffer a unit of so many tokens fills."""
        return -(-unit // self._visual_page_tokens)

    def media_pages(self, request: Request) -> tuple[int, int]:
        """Return the pages of the patch and the visual buffer that a request's media take."""
        arrival = request.arrival
        if request.window:
            return request.window.patch, request.window.visual
        return len(arrival.units) * arrival.patch_pages, sum(map(self.visual_pages, arrival.units))

    def _post(self, worker: Worker, event: Event | None) -> None:
        self.clock.after(self.costs.message, partial(self._deliver, worker, event))

    def _deliver(self, worker: Worker, event: Event | None) -> None:
        worker = self._present(worker)
        if event is not None and not self.is_lost(event):
            worker.receive(event)
        self.wake(worker)

    def _present(self, worker: Worker) -> Worker:
        """Return a worker, or its successor that goes on with its messages."""
        while after := self._gone.get(worker):
            worker = after
        return worker
