"""A cluster whose nodes are queues, under the code that serves: its routes, shares of encoders, and scaling.

A node does the work that is due first, and lets what comes later and is due sooner overtake.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import chain, count
from typing import NamedTuple

from flashcodec.layouts import PatchLayout

from unifiedserve.cluster.nodes.pool_scaler import PoolScaler
from unifiedserve.cluster.routing import Encoders, Fleet, Policy, Request
from unifiedserve.cluster.scaling import Limits
from unifiedserve.config import EngineConfig
from unifiedserve.engine.encoding.shares import share_out
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.load import EncodeNode, EngineLoad, LoadReport
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource
from unifiedserve.scheduling import Targets, Work
from unifiedserve.scheduling.simulation import StageCosts

LIMITS = Limits(1, 1 << 10)
START = 60.0  # seconds from the decision until a node serves; its GPUs count from the decision on
TICK = 1.0  # seconds between two reports of nodes, and between two decisions about their number
LAST = 3600.0  # seconds after the last question in which all answers end
TOGETHER = 64  # sequences that decode in a step


class Question(NamedTuple):
    """What is asked, and when (seconds): tokens of text, images, tokens of the answer."""

    at: float
    text: int
    images: int
    answer: int


class Served(NamedTuple):
    """When a first token came and was due: seconds after the question. `alone` is what it takes with nobody else."""

    first: float
    due: float
    alone: float


class Day(NamedTuple):
    """What a course of questions took: GPUs at each tick, and how each question was served."""

    gpus: list[int]
    served: list[Served]


class Demand(NamedTuple):
    """What a model makes of questions: what stages cost, tokens of an image, and whether prompts hold them, too."""

    costs: StageCosts
    image_tokens: int
    in_prompt: bool

    def visual(self, question: Question) -> int:
        """Return the visual tokens."""
        return question.images * self.image_tokens

    def prompt(self, question: Question) -> int:
        """Return the tokens to prefill."""
        return question.text + self.visual(question) * self.in_prompt

    def prefill(self, question: Question) -> float:
        """Return the seconds to prefill it."""
        prompt = self.prompt(question)
        return self.costs.prefill(prompt, prompt**2 / 2)

    def decode(self, question: Question) -> float:
        """Return the part of steps that its answer takes, in seconds."""
        context = self.prompt(question) + question.answer // 2
        return question.answer * self.costs.decode(TOGETHER, TOGETHER * context) / TOGETHER


@dataclass(slots=True)
class _Job:
    """Work of so many seconds, what happens when it is done, and what the node has to do then at once."""

    left: float
    done: Callable[[float], None]
    after: float = 0.0


class Node:
    """A queue that serves since `ready` (seconds)."""

    def __init__(self, ready: float) -> None:
        self.ready = ready
        self.expected = 0  # pieces of work that come when others have done theirs
        self._now = ready
        self._jobs: list[tuple[float, int, _Job]] = []  # by when they are due
        self._numbers = count()
        self._work = 0.0
        self._firsts = self._on_time = 0

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return not (self._jobs or self.expected)

    def add(self, at: float, seconds: float, due: float, done: Callable[[float], None], after: float = 0.0) -> None:
        """Take work that comes at a time, and is due so many seconds later; `done` hears when it has ended.

        Behind it comes work that nobody waits for, `after` it.
        """
        self.go_on(at)
        self._work += seconds
        heappush(self._jobs, (at + due, next(self._numbers), _Job(seconds, done, after)))

    def go_on(self, until: float) -> None:
        """Do what is done by then."""
        while self._jobs and self._now < until:
            due, _, job = self._jobs[0]
            part = min(job.left, until - self._now)
            self._now += part
            job.left -= part
            if job.left > 0:
                return
            heappop(self._jobs)
            if math.isfinite(due):
                self._firsts += 1
                self._on_time += self._now <= due
                heappush(self._jobs, (-math.inf, next(self._numbers), _Job(job.after, job.done)))
                job.done(self._now)
        self._now = max(self._now, until)

    def load(self, costs: Costs) -> EngineLoad:
        """Return what it tells routers and pools."""
        wait = sum(job.left for _, _, job in self._jobs)
        return EngineLoad(
            in_flight=len(self._jobs),
            wait=wait,
            visual_tokens=int(wait / costs.visual_token) if costs.visual_token else 0,
            costs=costs,
            backlog=wait,
            work=self._work,
            first_tokens=self._firsts,
            on_time=self._on_time,
        )


class Pool:
    """Nodes of so many GPUs each, as many as their load needs."""

    def __init__(self, prefix: str, gpus: int, costs: Costs) -> None:
        self.nodes: dict[str, Node] = {}
        self._costs = costs
        self._prefix = prefix
        self._gpus = gpus
        self._scaler = PoolScaler(LIMITS)
        self._numbers = count()
        self._leaving: list[Node] = []
        self._add(0.0)

    @property
    def gpus(self) -> int:
        """The GPUs that are paid for."""
        return self._gpus * (len(self.nodes) + len(self._leaving))

    def loads(self, now: float) -> dict[str, EngineLoad]:
        """Return what each node tells that serves."""
        return {name: node.load(self._costs) for name, node in self.nodes.items() if node.ready <= now}

    def go_on(self, now: float) -> None:
        """Let all nodes do what is done by then."""
        for node in chain(self.nodes.values(), self._leaving):
            node.go_on(now)

    def scale(self, now: float) -> None:
        """Have as many nodes as the load needs; the last ones leave first, when they have done what they have."""
        self._leaving = [node for node in self._leaving if not node.is_idle]
        told = {name: _report(load) for name, load in self.loads(now).items()}
        wanted = self._scaler.after(now, told, len(self.nodes))
        if wanted is None:
            return
        for _ in range(wanted.nodes - len(self.nodes)):
            self._add(now + START)
        for name in list(self.nodes)[wanted.nodes :]:
            self._leaving.append(self.nodes.pop(name))

    def _add(self, ready: float) -> None:
        self.nodes[f"{self._prefix}-{next(self._numbers)}"] = Node(ready)


def _report(load: EngineLoad) -> LoadReport:
    return LoadReport(model="", version="", started=0, healthy=True, max_model_len=0, load=load)


class _Cluster(ABC):
    """What both shapes of a cluster have: targets, reports, and the first tokens that came."""

    def __init__(self, demand: Demand, policy: Policy, pools: Sequence[Pool]) -> None:
        self._demand = demand
        self._pools = pools
        self._fleet = Fleet(policy)
        self._targets = Targets(EngineConfig())
        self._targets.learn(demand.costs.at_first())
        self._served: list[Served] = []

    def serve(self, questions: Sequence[Question]) -> Day:
        """Return how questions, which are in their order, are served."""
        gpus, now = list[int](), 0.0
        self._report(now)
        for question in questions:
            while question.at >= now + TICK:
                now += TICK
                self._go_on(now)
                for pool in self._pools:
                    pool.go_on(now)
                    pool.scale(now)
                self._report(now)
                gpus.append(sum(pool.gpus for pool in self._pools))
            self._go_on(question.at)
            self._ask(question)
        self._go_on(now + LAST)
        for pool in self._pools:
            pool.go_on(now + LAST)
        return Day(gpus, self._served)

    @abstractmethod
    def _ask(self, question: Question) -> None:
        """Send a question to a node."""

    @abstractmethod
    def _go_on(self, now: float) -> None:
        """Let happen what happens by then."""

    @abstractmethod
    def _report(self, now: float) -> None:
        """Let routers know of the nodes that are there."""

    def _tell(self, told: Fleet | Encoders, pool: Pool, now: float, **facts: bool) -> None:
        loads = pool.loads(now)
        for name in told:
            if name not in loads:
                told.leave(name)
        for name, load in loads.items():
            told.update(name, load, **facts)

    def _work(self, question: Question) -> Work:
        return Work(prompt_tokens=self._demand.prompt(question), visual_tokens=self._demand.visual(question))

    def _due(self, prompt: int, visual: int) -> float:
        """Return within how many seconds a first token is owed."""
        return self._targets.ticket(Ticket(0, 0.0), prompt, visual, visual).due

    def _first(self, question: Question, end: float) -> None:
        """Note that a first token has come."""
        demand, visual = self._demand, self._demand.visual(question)
        alone = demand.prefill(question) + (demand.costs.encode(visual) if visual else 0.0)
        self._served.append(Served(end - question.at, self._due(demand.prompt(question), visual), alone))


class Whole(_Cluster):
    """Nodes that have all stages."""

    def __init__(self, demand: Demand, policy: Policy, gpus: int) -> None:
        self._pool = Pool("whole", gpus, demand.costs.at_first())
        super().__init__(demand, policy, [self._pool])

    def _report(self, now: float) -> None:
        self._tell(self._fleet, self._pool, now)

    def _go_on(self, now: float) -> None:
        """Do nothing: a question is with one node from its beginning to its end."""

    def _ask(self, question: Question) -> None:
        demand, visual = self._demand, self._demand.visual(question)
        name = self._fleet.choose(Request(self._work(question)))
        assert name is not None
        seconds = demand.prefill(question) + (demand.costs.encode(visual) if visual else 0.0)
        due = self._due(demand.prompt(question), visual)
        first = partial(self._first, question)
        self._pool.nodes[name].add(question.at, seconds, due, first, demand.decode(question))


class Apart(_Cluster):
    """Stage pools: nodes that encode, of one GPU each, and nodes that prefill and decode.

    Media are shared out by what waits at encoders; with another policy than by cost, all of a question's go to one.
    """

    def __init__(self, demand: Demand, policy: Policy, gpus: int, encoder: StageCosts) -> None:
        own = demand.costs.at_first()
        self._encoder = encoder
        self._text = Pool("text", gpus, Costs(decode=own.decode, prompt_token=own.prompt_token))
        self._media = Pool("media", 1, Costs(visual_token=encoder.visual_token))
        super().__init__(demand, policy, [self._text, self._media])
        self._encoders: Encoders | Fleet = Encoders() if policy is Policy.COST else Fleet(policy)
        self._plan = MediaPlan(
            kind="image", layout=PatchLayout(28, 28), units=1, patches_per_unit=4, tokens_per_unit=demand.image_tokens
        )
        self._encoded: list[tuple[float, int, Question, Node]] = []  # by when
        self._turns = count()

    def _report(self, now: float) -> None:
        self._tell(self._fleet, self._text, now, encodes=False)
        self._tell(self._encoders, self._media, now)

    def _ask(self, question: Question) -> None:
        name = self._fleet.choose(Request(self._work(question)))
        assert name is not None
        text = self._text.nodes[name]
        text.expected += 1
        if not question.images:
            self._prefill(question, text, question.at)
            return
        shares = list(self._shares_of(question))
        missing, due = [len(shares)], self._due(0, self._demand.visual(question))

        def encoded(at: float) -> None:
            missing[0] -= 1
            if not missing[0]:
                heappush(self._encoded, (at + self._demand.costs.pull, next(self._turns), question, text))

        for node, images in shares:
            tokens = images * self._demand.image_tokens
            node.add(question.at, self._encoder.encode(tokens), due, encoded)

    def _go_on(self, now: float) -> None:
        """Let encoders go on, and text nodes begin with what they have encoded by then."""
        self._media.go_on(now)
        while self._encoded and self._encoded[0][0] <= now:
            at, _, question, text = heappop(self._encoded)
            self._prefill(question, text, at)

    def _prefill(self, question: Question, text: Node, at: float) -> None:
        text.expected -= 1
        demand, first = self._demand, partial(self._first, question)
        text.add(at, demand.prefill(question), self._due(demand.prompt(question), 0), first, demand.decode(question))

    def _shares_of(self, question: Question) -> Iterator[tuple[Node, int]]:
        """Yield the nodes that encode a question's images, and how many each."""
        if isinstance(self._encoders, Fleet):
            one = self._encoders.choose(Request(self._work(question)))
            assert one is not None
            yield self._media.nodes[one], question.images
            return
        named = self._encoders.choose(self._demand.visual(question), key=str(question.at))
        sources = [MediaSource(plan=self._plan, name="", first_unit=each) for each in range(question.images)]
        nodes = [EncodeNode(name, pending) for name, pending in named]
        for share in share_out(sources, range(len(sources)), nodes):
            yield self._media.nodes[share.node.url], len(share.units)
