"""Share the hardware between all that runs at once: how fast work goes, and when the next piece ends."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Protocol

from unifiedserve.placement import Stage

NICE_STEP = 1.25  # of the weights of two neighbouring levels: sched(7)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Describe what a piece of work can use: so many cores, at a process's priority.

    If it names `cores`, of these only. It is of a stage, or of the HTTP server (None). Where there are GPUs it runs on
    that of number `device`, or on the host (None). Work alike has the same one: they are told apart by identity, which
    is fast.
    """

    threads: int
    nice: int = 0
    cores: tuple[int, ...] = ()
    stage: Stage | None = None
    device: int | None = None


class Sharing(Protocol):
    """Share a kind of hardware."""

    #: decode rests between its steps, or leaves cores, while others have work (as in `device.base.Sharing`)
    rests: bool

    def threads(self, giving: bool) -> int:
        """Return how many cores a step may use. Some steps leave a part to others."""

    def decoders(self, threads: int) -> int:
        """Return how many segments of videos an instance of so many `threads` decodes at once."""

    def rates(self, demands: tuple[Demand, ...]) -> Sequence[float]:
        """Return how fast each goes when all of them run: 1.0 as alone."""


class Cores:
    """Share the cores of a CPU: each thread gets at most one, in proportion to its weight (CFS's, sched(7)).

    Threads of one step wait for each other. Work on all cores holds them up alike; work on some of them holds up some
    threads: of what a step gets, the part `waste` is lost in proportion to what such narrow work takes of its cores.
    """

    rests = True

    def __init__(self, count: int, waste: float = 0.0) -> None:
        self._count = count
        self._waste = waste
        self.rates = cache(self._rates)

    def threads(self, giving: bool) -> int:
        return self._count // 2 or 1 if giving else self._count

    def decoders(self, threads: int) -> int:
        return threads

    def _rates(self, demands: tuple[Demand, ...]) -> list[float]:
        rates = [0.0] * len(demands)
        for cores, members in self._groups(demands):
            own = self._shared_out(cores, [demands[i] for i in members])
            for i, rate in zip(members, own, strict=True):
                rates[i] = rate
        return rates

    def _groups(self, demands: tuple[Demand, ...]) -> list[tuple[int, list[int]]]:
        """Return the number of cores of each kind, and the work there.

        Work that may run anywhere goes where room is.
        """
        named = {demand.cores: len(demand.cores) for demand in demands if demand.cores}
        sizes = {**named, (): self._count - sum(named.values())}
        members: dict[tuple[int, ...], list[int]] = {cores: [] for cores, size in sizes.items() if size > 0}
        room = {cores: sizes[cores] for cores in members}
        for i in sorted(range(len(demands)), key=lambda i: not demands[i].cores):
            cores = demands[i].cores or max(room, key=room.__getitem__)
            members[cores].append(i)
            room[cores] -= demands[i].threads
        return [(sizes[cores], own) for cores, own in members.items() if own]

    def _shared_out(self, count: int, demands: Sequence[Demand]) -> list[float]:
        """Share out the cores to the heaviest threads first: others get their unused part (max-min fair)."""
        got = [0.0] * len(demands)
        left = float(count)
        weights = [demand.threads * NICE_STEP**-demand.nice for demand in demands]
        waiting = sum(weights)
        for i in sorted(range(len(demands)), key=lambda i: demands[i].nice):
            got[i] = min(float(demands[i].threads), left * weights[i] / waiting)
            left -= got[i]
            waiting -= weights[i]
        narrow = [cores if demand.threads < count else 0.0 for demand, cores in zip(demands, got, strict=True)]
        held_up = sum(narrow)
        return [
            self._rate(cores / demand.threads, (held_up - own) / demand.threads if demand.threads > 1 else 0.0)
            for demand, cores, own in zip(demands, got, narrow, strict=True)
        ]

    def _rate(self, share: float, held_up: float) -> float:
        """Return how fast a step goes that gets a share of its cores.

        Narrow work takes the part `held_up` of them.
        """
        return share * (1 - self._waste * min(1 - share, held_up))


class Work(NamedTuple):
    """Describe a part of a step.

    It has the seconds it takes alone, its stage (prefill where sequences go along), the action at its end, and whether
    it leaves cores to others.
    """

    seconds: float
    stage: Stage
    end: Callable[[], None]
    giving: bool = False


@dataclass(slots=True, eq=False)
class Task:
    """Track a piece of work that runs: the seconds it still takes alone, and the action at its end.

    `owner` is the instance that it belongs to.

    `paces` are the rates at which it has gone, each with what was `done` of it (seconds) when that began.
    """

    seconds: float
    demand: Demand
    ended: Callable[[], None]
    owner: str = ""
    rate: float = 0.0
    done: float = 0.0
    paces: list[tuple[float, float]] = field(default_factory=list)


class Machine:
    """Run tasks, each at its rate until another one begins or ends.

    `seconds` are how long it was busy with what, so far.
    """

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing
        self.seconds = defaultdict[tuple[Demand, ...], float](float)
        self._tasks: list[Task] = []
        self._demands: tuple[Demand, ...] = ()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, task: Task) -> None:
        """Let a task run from now on."""
        self._tasks.append(task)
        self._share()

    @property
    def left(self) -> float:
        """Return the seconds until the next task ends, if none begins before; infinity without any."""
        return min([task.seconds / task.rate for task in self._tasks], default=float("inf"))

    def advance(self, seconds: float) -> None:
        """Let so much time pass, not more than is `left`."""
        self.seconds[self._demands] += seconds
        for task in self._tasks:
            task.seconds -= seconds * task.rate
            task.done += seconds * task.rate

    def end_next(self) -> Task:
        """Take the task away that ends first."""
        task = min(self._tasks, key=lambda task: task.seconds / task.rate)
        self._tasks.remove(task)
        self._share()
        return task

    def drop(self, owner: str) -> None:
        """Let the tasks of an instance never end: its worker has died."""
        self._tasks = [task for task in self._tasks if task.owner != owner]
        self._share()

    def _share(self) -> None:
        self._demands = tuple([task.demand for task in self._tasks])
        rates = self.sharing.rates(self._demands)
        for task, rate in zip(self._tasks, rates, strict=True):
            if task.rate != rate:
                task.rate = rate
                task.paces.append((task.done, rate))
