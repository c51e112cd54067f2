"""Every order in which a simulated system can go on: messages, ends of work and turns, each as late as it likes.

An explicit-state model checker. Times are dropped, so that a state is what the workers hold, what is under way and
what has been sent: messages to one worker keep their order, and nothing else does.
"""

import io
import pickle
from collections import deque
from collections.abc import Hashable, Iterator
from functools import partial
from graphlib import TopologicalSorter
from types import FunctionType, MethodType
from typing import Any, NamedTuple
from unittest.mock import patch

from unifiedserve.placement import Placement
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, Simulator, StageCosts, system
from unifiedserve.scheduling.simulation.clock import Action, Clock
from unifiedserve.scheduling.simulation.machine import Cores, Task
from unifiedserve.scheduling.simulation.system import Worker


class PlainCores(Cores):
    """Cores whose rates are not cached, so that they can be pickled."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.rates = self._rates  # type: ignore[assignment]


class AnyOrder(Clock):
    """Time that stands still: whatever was sent or begun may be next."""

    def __init__(self) -> None:
        super().__init__()
        self.mail: dict[Worker, deque[Action]] = {}  # what each has been sent, and has not seen
        self.others: list[Action] = []

    @property
    def next(self) -> float:
        return self.now if self.mail or self.others else float("inf")

    def at(self, time: float, action: Action) -> None:
        assert isinstance(action, partial)
        if action.func.__name__ == "_deliver":
            self.mail.setdefault(action.args[0], deque()).append(action)
        else:
            self.others.append(action)

    def deliver(self, worker: Worker, count: int) -> None:
        """Let a worker see so many of its messages."""
        mail = self.mail.get(worker, deque())
        for _ in range(count):
            mail.popleft()()
        if not mail:
            self.mail.pop(worker, None)


_NEVER_CHANGES = Placement, Budget, Arrival, StageCosts, FunctionType


class _Pickler(pickle.Pickler):
    """Pickles a state, without what never changes."""

    def __init__(self, file: io.BytesIO, kept: dict[int, Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._kept = kept

    def persistent_id(self, given: Any) -> int | None:
        if not isinstance(given, _NEVER_CHANGES):
            return None
        self._kept[id(given)] = given
        return id(given)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, kept: dict[int, Any]) -> None:
        super().__init__(file)
        self._kept = kept

    def persistent_load(self, number: int) -> Any:
        return self._kept[number]


class _States:
    """Simulators as they were."""

    def __init__(self) -> None:
        self._kept: dict[int, Any] = {}

    def save(self, simulator: Simulator) -> bytes:
        file = io.BytesIO()
        _Pickler(file, self._kept).dump(simulator)
        return file.getvalue()

    def load(self, state: bytes) -> Simulator:
        loaded: Simulator = _Unpickler(io.BytesIO(state), self._kept).load()
        return loaded


class Explored(NamedTuple):
    """How many states there are, how many ways lead from one to another, and whether these are all."""

    states: int
    steps: int
    complete: bool


def in_any_order(*given: Any, **named: Any) -> Simulator:
    """Return a simulator whose steps `explore` can choose."""
    with patch.object(system, "Clock", AnyOrder):
        return Simulator(*given, **named)


def explore(simulator: Simulator, most: int) -> Explored:
    """Go through all states that can be reached, up to `most`.

    Raises AssertionError for one in which nothing can happen though a request lacks tokens, and for a circle of states:
    workers that are busy for ever.
    """
    states, following = _States(), dict[int, list[int]]()
    start = _fingerprint(simulator)
    seen, waiting = {start}, deque([(start, states.save(simulator))])
    while waiting and len(seen) < most:
        number, state = waiting.pop()
        choices = len(_choices(states.load(state)))
        assert choices or not states.load(state).unfinished, "nothing can happen, and a request lacks tokens"
        following[number] = []
        for choice in range(choices):
            reached = states.load(state)
            _choices(reached)[choice]()
            found = _fingerprint(reached)
            following[number].append(found)
            if found not in seen:
                seen.add(found)
                waiting.append((found, states.save(reached)))
    TopologicalSorter(following).prepare()  # raises CycleError
    return Explored(len(seen), sum(map(len, following.values())), not waiting)


def _choices(simulator: Simulator) -> list[Action]:
    """Return what can happen next: work ends, or a worker has its turn with some of the messages that it was sent."""
    machine, engine = simulator._machine, simulator.system
    ends = [partial(_end, simulator, task) for task in machine._tasks]
    others = [partial(_happen, engine.clock, action) for action in engine.clock.others]
    awake = {worker: len(mail) for worker, mail in engine.clock.mail.items()} | dict.fromkeys(engine._ready, 0)
    turns = [
        partial(_turn, engine, worker, count)
        for worker in awake
        if not getattr(worker, "_busy", False)
        for count in range(0 if worker in engine._ready else 1, len(engine.clock.mail.get(worker, ())) + 1)
    ]
    return [*turns, *ends, *others]


def _turn(engine: system.System, worker: Worker, messages: int) -> None:
    engine.clock.deliver(worker, messages)
    engine._ready.pop(worker, None)
    worker.turn()


def _end(simulator: Simulator, task: Task) -> None:
    simulator._machine._tasks.remove(task)
    task.ended()


def _happen(clock: AnyOrder, action: Action) -> None:
    clock.others.remove(action)
    action()


def _fingerprint(simulator: Simulator) -> int:
    """Return what tells two states apart: all that they have but times, and the order of what can happen next."""
    engine = simulator.system
    met = {id(engine): -1}  # what all workers refer to is looked at apart
    workers = {id(worker): worker for stages in engine.workers.values() for worker in stages.values()}
    held = _frozen([engine.frees, list(workers.values()), engine.requests, engine.status], met)
    pending = [task.ended for task in simulator._machine._tasks] + [*engine.clock.others, *engine.clock.mail.values()]
    turns = sorted(met[id(worker)] for worker in engine._ready)
    return hash((held, tuple(turns), tuple(sorted(hash(_frozen(each, met.copy())) for each in pending))))


def _frozen(value: Any, met: dict[int, int]) -> Hashable:
    """Return a value and all that can be reached from it, without times."""
    if isinstance(value, float):
        return None
    if value is None or isinstance(value, int | str | bytes):
        return value
    if isinstance(value, _NEVER_CHANGES):
        return id(value)
    if id(value) in met:
        return ("again", met[id(value)])
    met[id(value)] = len(met)
    if isinstance(value, MethodType):
        return value.__name__, _frozen(value.__self__, met)
    if isinstance(value, partial):
        return _frozen(value.func, met), tuple(_frozen(each, met) for each in value.args)
    if isinstance(value, dict):
        return tuple((_frozen(key, met), _frozen(each, met)) for key, each in value.items())
    if isinstance(value, tuple | list | deque):
        return tuple(_frozen(each, met) for each in value)
    if isinstance(value, set | frozenset):
        return tuple(sorted(map(repr, value)))
    return type(value).__name__, tuple(_frozen(each, met) for each in _parts(value))


def _parts(value: Any) -> Iterator[Any]:
    if hasattr(value, "__dict__"):
        yield from vars(value).values()
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(value, name):
                yield getattr(value, name)
