"""What all workers of a simulated engine share: time, the machine, messages, pages, what they tell each other."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from unifiedserve.config import Instance, Stage
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling.simulation.arrival import FreePages, Rules
from unifiedserve.scheduling.simulation.clock import Action, Clock
from unifiedserve.scheduling.simulation.costs import StageCosts
from unifiedserve.scheduling.simulation.machine import Demand, Machine, Task
from unifiedserve.scheduling.simulation.messages import Begin, Message, Request
from unifiedserve.scheduling.state import DecodeState
from unifiedserve.scheduling.targets import Targets


class Worker(Protocol):
    """A process with some of the stages. It takes messages in at its turns only, which it has when it is not busy."""

    @property
    def costs(self) -> Costs:
        """Return what its steps have taken lately."""

    def receive(self, message: Message) -> None:
        """Keep a message for the next turn."""

    def accept(self, message: Message) -> None:
        """Take a message in at once."""

    def turn(self) -> None:
        """Plan and begin the next step, if there is none under way."""


@dataclass(slots=True)
class Status:
    """What the workers tell each other without messages (as `memory/status.py`)."""

    working: dict[Stage, bool] = field(default_factory=lambda: dict.fromkeys(Stage, False))
    waiting: int = 0  # requests in the worker that prefills
    joining: bool = False
    share: float = 1.0  # of their budgets, of heavy stages beside streams


class System:
    """One engine: its workers by the stages that they host, its buffers and its machine."""

    def __init__(
        self,
        machine: Machine,
        costs: StageCosts,
        free: FreePages,
        rules: Rules,
        page_tokens: int,
        targets: Targets | None,
    ) -> None:
        self.machine = machine
        self.costs = costs
        self.free = free
        self.kv_total = free.kv
        self.rules = rules
        self._page_tokens = page_tokens
        self._targets = targets
        self.clock = Clock()
        self.status = Status()
        self.workers: dict[Stage, Worker] = {}
        self._ready: dict[Worker, None] = {}  # in the order in which they were woken

    def run(self, instance: Instance, threads: int, seconds: float, ended: Action) -> Task:
        """Let an instance compute, and do something when that has ended."""
        task = Task(seconds, Demand(threads, instance.nice), ended)
        self.machine.start(task)
        return task

    def send(self, stage: Stage, message: Message, sender: Worker | None = None) -> None:
        """Send a message to the worker that hosts a stage; to the sender itself without a detour."""
        worker = self.workers[stage]
        if worker is sender:
            worker.accept(message)
        else:
            self._post(worker, message)

    def begin(self, request: Request) -> None:
        """Send a request to the workers, for the first time or when it has lost its pages."""
        if self._targets:
            request.ticket = self._ticket(request, self._targets)
        hosts = [self.workers[stage] for stage in (Stage.ENCODE, Stage.PREFILL)]
        if request.arrival.units:
            hosts.append(self.workers[Stage.VISION])
        for worker in dict.fromkeys(hosts):
            self._post(worker, Begin(request))

    def _ticket(self, request: Request, targets: Targets) -> Ticket:
        """Return its place in the queues (as `engine/requests/`): whose stream has begun owes its next token now."""
        for worker in self.workers.values():
            targets.learn(worker.costs)
        arrival, visual = request.arrival, sum(request.arrival.units)
        prompt = sum(arrival.gaps) + len(request.tokens) + (0 if self.rules.keeps_visual else visual)
        return targets.ticket(request.ticket, prompt, visual, visual, 0.0 if request.tokens else arrival.target)

    def wake(self, worker: Worker) -> None:
        """Give a worker a turn when all that happens now has happened."""
        self._ready[worker] = None

    def take_turns(self) -> None:
        """Give a turn to all that were woken."""
        while self._ready:
            worker = next(iter(self._ready))
            del self._ready[worker]
            worker.turn()

    @property
    def quiet_until(self) -> float:
        """Return the time (seconds) before which nothing happens but what the worker does whose turn it is."""
        return self.clock.now if len(self.machine) or self._ready else self.clock.next

    def tokens(self, request: Request, times: Iterable[float]) -> bool:
        """Note that a request got tokens, and when its client has them; return whether there was the last."""
        request.tokens += [time + self.costs.reply for time in times]
        return not request.left

    def release(self, request: Request, state: DecodeState) -> None:
        """Give back what an answer holds."""
        self.free.kv += state.pages
        if self.rules.keeps_visual:
            self.free.visual += sum(map(self.visual_pages, request.arrival.units))

    def kv_pages(self, tokens: int) -> int:
        """Return how many pages of the KV cache so many tokens fill."""
        return -(-tokens // self._page_tokens)

    def visual_pages(self, unit: int) -> int:
        """Return how many pages of the visual buffer a unit of so many tokens fills."""
        return -(-unit // self.free.visual_page_tokens)

    def _post(self, worker: Worker, message: Message) -> None:
        self.clock.after(self.costs.message, partial(self._deliver, worker, message))

    def _deliver(self, worker: Worker, message: Message) -> None:
        worker.receive(message)
        self.wake(worker)
