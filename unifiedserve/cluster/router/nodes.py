"""Know the router's nodes: their names, how busy they are, and which of them takes a request."""

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Collection, Iterable, Iterator
from typing import NamedTuple, TypeVar

import aiohttp
import msgspec

from unifiedserve.cluster.members import Member
from unifiedserve.cluster.routing import Encoders, Fleet, Policy, Request
from unifiedserve.config import key_header
from unifiedserve.errors import NO_JSON
from unifiedserve.messages.load import EncodeNode, LoadReport
from unifiedserve.placement import Stage

T = TypeVar("T")

_LOOK = 0.2  # seconds from one look at a node's load to the next
_PATIENCE = aiohttp.ClientTimeout(total=0.5)
_MISSED = 2  # looks without an answer after which a node gets no more requests, and others take over those it has
_AWAY = 5.0  # seconds after which one that cannot be reached is named, and nobody waits for it any more


class Node:
    """Hold a member, and what it has told last."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.report: LoadReport | None = None
        self.missed = 0
        self.heard = time.monotonic()
        self.streams: set[aiohttp.ClientResponse] = set()  # answers that are read as they come
        self._waits: set[asyncio.Timeout] = set()

    @property
    def is_away(self) -> bool:
        """Tell whether it has said nothing for some seconds: its process hangs, or it is cut off."""
        return self.silent_seconds > _AWAY

    @property
    def silent_seconds(self) -> float:
        """Return the time since it has told of itself, or came to be known."""
        return time.monotonic() - self.heard

    async def reply(self, awaited: Awaitable[T]) -> T:
        """Return what is awaited from the node. Raises TimeoutError as soon as it is away: no connection tells that."""
        async with asyncio.timeout(None) as wait:
            self._waits.add(wait)
            try:
                return await awaited
            finally:
                self._waits.discard(wait)

    def give_up(self) -> None:
        """End all waits for replies, and break off all streams."""
        for stream in self.streams:
            stream.close()
        waits, self._waits = self._waits, set()
        for wait in waits:
            wait.reschedule(0.0)  # which is over

    @property
    def encodes_for_others(self) -> bool:
        """Tell whether it takes no requests of clients, but encodes what other nodes ask for."""
        return bool(self.report and Stage.PREFILL not in self.report.stages)

    @property
    def needs_encoders(self) -> bool:
        """Tell whether other nodes encode the images and videos of its requests."""
        return bool(self.report and Stage.ENCODE not in self.report.stages)

    @property
    def takes_requests(self) -> bool:
        """Tell whether it serves, as far as is known."""
        return bool(self.report and self.report.healthy) and not self.member.draining and self.missed < _MISSED


class Need(NamedTuple):
    """State what a request needs of nodes: a model (None: any), and an encoder for images and videos."""

    model: str | None
    encoder: bool


_Served = tuple[str, str]  # a model, and by which version: others may encode otherwise


def _served(report: LoadReport) -> _Served:
    return report.model, report.version


def _count(node: Node, fleet: Fleet) -> None:
    """Have a fleet know what a node has told last."""
    if node.report:
        fleet.update(node.member.name, node.report.load, encodes=not node.needs_encoders)


class Nodes:
    """Hold all members, each of which is asked for its load all the while. Belongs to the router's event loop."""

    def __init__(self, http: aiohttp.ClientSession, policy: Policy) -> None:
        self._http = http
        self._policy = policy
        self._nodes: dict[str, Node] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._fleets: dict[str, Fleet] = {}  # by model
        self._encoders: defaultdict[_Served, Encoders] = defaultdict(Encoders)
        self._changed = asyncio.Event()
        self._asleep: frozenset[str] = frozenset()  # pools without nodes
        self._told: dict[str, LoadReport] = {}  # by pool, what one of its nodes has told last
        self._waiting: Counter[Need] = Counter()  # of requests that no node can take

    def follow(self, members: Iterable[Member], asleep: Iterable[str] = ()) -> None:
        """Know these members from now on, and no others; the pools `asleep` get some when requests wait."""
        self._asleep = frozenset(asleep)
        told = {member.name: member for member in members}
        for name in self._nodes.keys() - told.keys():
            self._forget(name)
        for name, member in told.items():
            if name in self._nodes and self._nodes[name].member.url == member.url:
                self._nodes[name].member = member
                self._place(self._nodes[name])
                continue
            self._forget(name)
            self._nodes[name] = Node(member)
            self._looking[name] = asyncio.create_task(self._look(self._nodes[name]))

    def close(self) -> None:
        """Stop looking."""
        for task in self._looking.values():
            task.cancel()

    @property
    def known_models(self) -> Collection[str]:
        """Return the models that nodes have served, those included whose nodes are all away."""
        return self._fleets.keys()

    @property
    def others_may_wake(self) -> bool:
        """Tell whether a pool sleeps whose model nobody has told yet."""
        return not self._asleep <= self._told.keys()

    @property
    def waiting(self) -> int:
        """Return how many requests no node can take."""
        return self._waiting.total()

    @property
    def awaited(self) -> set[str]:
        """Return the sleeping pools that requests wait for."""
        return {pool for need in self._waiting for pool in self.sleeping(need)}

    def sleeping(self, need: Need) -> list[str]:
        """Return the pools that sleep and may meet a need; one that is not known yet may meet any."""
        return [pool for pool in self._asleep if self._may_meet(need, self._told.get(pool))]

    @staticmethod
    def _may_meet(need: Need, told: LoadReport | None) -> bool:
        if told is None:
            return True
        return need.model in (None, told.model) and (need.encoder or Stage.PREFILL in told.stages)

    @property
    def models(self) -> dict[str, LoadReport]:
        """Return the models that are served, each with the report of one that serves it."""
        firsts = {model: next(iter(fleet), None) for model, fleet in self._fleets.items()}
        return {model: report for model, name in firsts.items() if name and (report := self._nodes[name].report)}

    @property
    def has_asleep(self) -> bool:
        """Tell whether a pool sleeps, which a request would wake."""
        return bool(self._asleep)

    @property
    def listed_models(self) -> dict[str, LoadReport]:
        """Return `models`, and those of pools that sleep, each with a node's last report."""
        told = [report for pool in sorted(self._asleep) if (report := self._told.get(pool))]
        return {report.model: report for report in told if Stage.PREFILL in report.stages} | self.models

    def each(self) -> list[Node]:
        """Return all nodes."""
        return list(self._nodes.values())

    def choose(self, model: str | None, request: Request, without: Collection[str] = ()) -> Node | None:
        """Return the node that takes a request for a model (None: the first one).

        It is none of those `without`; None if nobody can. Nobody can take images and videos that needs encoders and has
        none.
        """
        name = next(iter(self.models), None) if model is None else model
        fleet = self._fleets.get(name or "")
        if fleet is None:
            return None
        if request.work.visual_tokens:
            without = {*without, *(each for each in fleet if self._lacks_encoders(self._nodes[each]))}
        left = [each for each in without if each in fleet]
        for each in left:
            fleet.leave(each)
        chosen = fleet.choose(request)
        for each in left:
            _count(self._nodes[each], fleet)
        return self._nodes[chosen] if chosen else None

    def encode_nodes(self, node: Node, request: Request) -> list[EncodeNode]:
        """Return nodes that may encode a request's media for a node.

        There are none if it has no media, or the node does so.
        """
        tokens = request.work.visual_tokens
        if not (tokens and node.needs_encoders and node.report):
            return []
        named = self._encoders[_served(node.report)].choose(tokens, request.key)
        return [EncodeNode(self._nodes[name].member.url, pending) for name, pending in named]

    def _lacks_encoders(self, node: Node) -> bool:
        return bool(node.needs_encoders and node.report and not self._encoders[_served(node.report)])

    def suspect(self, node: Node) -> None:
        """Send nothing to a node that broke off, until it tells of itself again."""
        node.missed = _MISSED
        self._place(node)

    @contextlib.contextmanager
    def counted_as_waiting(self, need: Need) -> Iterator[None]:
        """Count a request that no node can take: it wakes the pools that it needs."""
        self._waiting[need] += 1
        try:
            yield
        finally:
            self._waiting[need] -= 1
            self._waiting += Counter()  # which drops what is zero

    async def wait(self, seconds: float) -> None:
        """Return when a node has told of itself, or after so many seconds."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _look(self, node: Node) -> None:
        while True:
            silent = False
            try:
                url = f"{node.member.url}/v1/load"
                async with self._http.get(url, headers=key_header(), timeout=_PATIENCE) as response:
                    node.report = msgspec.json.decode(await response.read(), type=LoadReport)
                node.missed, node.heard = 0, time.monotonic()
            except TimeoutError:
                node.missed, silent = node.missed + 1, True
            except (aiohttp.ClientError, *NO_JSON):
                node.missed += 1
            self._place(node)
            if node.is_away or (silent and node.missed >= _MISSED and self._has_others(node)):
                node.give_up()
            self._changed.set()
            await asyncio.sleep(0 if silent and node.missed < _MISSED else _LOOK)

    def _has_others(self, node: Node) -> bool:
        """Tell whether others take the requests of a node that gets no more."""
        return bool(node.report and self._fleets.get(node.report.model))

    def _place(self, node: Node) -> None:
        """Put a node where it gets requests of its model, or take it away."""
        name = node.member.name
        if node.report:
            self._told[node.member.pool] = node.report
        own = (node.report.model, _served(node.report)) if node.report and node.takes_requests else ()
        for served, group in self._groups():
            if served not in own:
                group.leave(name)
        if not (node.takes_requests and node.report):
            return
        if node.encodes_for_others:
            self._encoders[_served(node.report)].update(name, node.report.load)
        else:
            _count(node, self._fleets.setdefault(node.report.model, Fleet(self._policy)))

    def _groups(self) -> list[tuple[str | _Served, Fleet | Encoders]]:
        """Return all that nodes are placed in, each with what its nodes serve."""
        return [*self._fleets.items(), *self._encoders.items()]

    def _forget(self, name: str) -> None:
        if self._nodes.pop(name, None):
            self._looking.pop(name).cancel()
            for _, group in self._groups():
                group.leave(name)

    def unreachable(self) -> list[str]:
        """Return a line for each node that has said nothing for some seconds."""
        return [
            f"{node.member.name} at {node.member.url} has not answered for {node.silent_seconds:.0f} s"
            for node in self._nodes.values()
            if node.is_away
        ]
