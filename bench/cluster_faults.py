"""What clients see of it when nodes of a cluster end, hang or are cut off while they answer, again and again.

A cluster of its own comes up on this machine, with two routers, and a third one that reaches the nodes by ways which
can be cut. In each round clients stream greedy answers through all of them; when all have begun, something ends. Each
answer is compared with that of before the first round. A pause is the longest time between two pieces of an answer.

    python bench/cluster_faults.py --deaths 200 --json bench/results/cluster-faults.json
"""

import asyncio
import json
import os
import random
import re
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import msgspec
import psutil
import typer
from fault_clients import PATIENCE, QUESTIONS, Answer, Stream
from fault_ways import FarRouter, far_router

from unifiedserve.cluster.cluster_file import Cluster, Pool, RouterOptions
from unifiedserve.cluster.members import Member
from unifiedserve.cluster.nodes.reports import ClusterStatus, NodeReport, Phase
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.errors import ConfigError

if TYPE_CHECKING:
    from unifiedserve.cluster.nodes.client import RunningCluster

FEWEST = 2  # nodes that serve when another one is killed
HELD = 4.0  # seconds that a node hangs or is cut off, at least
LOOK = 0.5  # seconds between two looks at the cluster
SMALL = {"kv-cache-mib": 64, "patch-buffer-mib": 32, "visual-buffer-mib": 16, "visual-cache-mib": 16}
BREAKS = re.compile(r"^unifiedserve:router_breaks_total\{.*\} (\S+)$", re.MULTILINE)


class Kind(StrEnum):
    """Name what happens to a node, or to a router."""

    SERVER = "its server is killed"
    ACTOR = "its actor is killed"
    WORKER = "a worker is killed"
    HANG = "its server is stopped, and goes on later"
    CUT = "nothing comes through to it or from it"
    ROUTER = "a router is killed"


RESTARTED = (Kind.SERVER, Kind.ACTOR)


@dataclass
class Round:
    """Hold what clients saw when something ended. `broken` are the answers that a router had go on elsewhere."""

    kind: Kind
    pauses: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: int = 0
    broken: int = 0
    asked_again: int = 0

    def take(self, answer: Answer | BaseException, expected: str) -> None:
        """Note what one client has got."""
        if isinstance(answer, BaseException):
            self.lost.append(f"{type(answer).__name__}: {answer}")
            return
        if answer.asked > 1 and self.kind is not Kind.ROUTER:
            self.lost.append("the connection to a router broke off")
        self.asked_again += answer.asked - 1
        self.wrong += answer.text != expected
        self.pauses.append(answer.pause)


class Cast:
    """The cluster, its routers, and the clients."""

    def __init__(self, running: "RunningCluster", far: FarRouter, ports: Sequence[int], tokens: int) -> None:
        self._running = running
        self._far = far
        self._routers = [*(f"http://127.0.0.1:{port}" for port in ports), far.url]
        self._tokens = tokens
        self._http = httpx.AsyncClient(timeout=PATIENCE, trust_env=False, limits=httpx.Limits(max_connections=None))
        self._expected: dict[str, str] = {}
        self._draw = random.Random(0)

    async def learn(self) -> None:
        """Ask each question once, undisturbed."""
        await self._look()
        for question in QUESTIONS:
            self._expected[question] = (await Stream(self._http, question, self._tokens).answer(self._routers)).text

    async def next_round(self, left: list[Kind], streams: int) -> Round | None:
        """Have the first of what is left happen that can happen now, and take it off; None if it has not happened."""
        while not (possible := self._possible(left, status := await self._look())):
            await asyncio.sleep(LOOK)
        kind, urls = possible[0], await self._serving()
        round, before = Round(kind), await self._breaks()
        questions = [self._draw.choice(QUESTIONS) for _ in range(streams)]
        after = self._draw.randrange(self._tokens // 4)
        asking = [Stream(self._http, question, self._tokens, after) for question in questions]
        routers = [list(islice(cycle(urls), first, first + len(urls))) for first in range(streams)]
        answers = asyncio.gather(
            *(each.answer(own) for each, own in zip(asking, routers, strict=True)), return_exceptions=True
        )
        await asyncio.gather(*(each.begun.wait() for each in asking))
        happened = await self._happen(kind, status, answers)
        for answer, question in zip(await answers, questions, strict=True):
            round.take(answer, self._expected[question])
        round.broken = max(0, await self._breaks() - before)
        if not happened:
            return None
        left.remove(kind)
        return round

    async def _serving(self) -> list[str]:
        """Return the routers that serve: one that was killed takes a while."""
        found = list[str]()
        for url in self._routers:
            with suppress(httpx.HTTPError):
                if (await self._http.get(f"{url}/ready")).is_success:
                    found.append(url)
        return found

    async def _look(self) -> ClusterStatus:
        """Return how the cluster is; the far router knows the same nodes as the others."""
        status = await asyncio.to_thread(self._status)
        await self._far.know(Member(name=node.name, pool=node.pool, url=node.url) for node in _nodes(status))
        return status

    def _status(self) -> ClusterStatus:
        while True:
            try:
                return self._running.status()
            except ConfigError as error:
                print(error, file=sys.stderr, flush=True)

    @staticmethod
    def _possible(left: list[Kind], status: ClusterStatus) -> list[Kind]:
        """Return what may happen, so that the others can take over."""
        enough, routers = len(_nodes(status)) > FEWEST, all(each.phase is Phase.SERVING for each in status.routers)
        return [
            kind
            for kind in left
            if (enough or kind not in RESTARTED) and (routers or kind is not Kind.ROUTER) and len(_nodes(status)) > 1
        ]

    async def _happen(self, kind: Kind, status: ClusterStatus, answers: "asyncio.Future[Any]") -> bool:
        """Have it happen to one node or router; return whether that was still there."""
        node = self._draw.choice(_nodes(status))
        try:
            if kind is Kind.ROUTER:
                psutil.Process(self._draw.choice(status.routers).pid).kill()
            elif kind is Kind.SERVER:
                psutil.Process(node.pid).kill()
            elif kind is Kind.ACTOR:
                _actor(node.pid).kill()
            elif kind is Kind.WORKER:
                self._draw.choice(_workers(node.pid)).kill()
            elif kind is Kind.HANG:
                psutil.Process(node.pid).suspend()
                await _until(answers)
                psutil.Process(node.pid).resume()
            elif kind is Kind.CUT:
                self._far.way(node.url).cut()
                await _until(answers)
                self._far.way(node.url).mend()
        except psutil.NoSuchProcess:
            return False
        return True

    async def _breaks(self) -> int:
        """Return how often routers have had other nodes go on; one that has just started counts from zero."""
        total = 0.0
        for url in self._routers:
            with suppress(httpx.HTTPError):
                total += sum(map(float, BREAKS.findall((await self._http.get(f"{url}/metrics")).text)))
        return int(total)


def _nodes(status: ClusterStatus) -> list[NodeReport]:
    """Return the nodes that serve."""
    return [node for pool in status.pools for node in pool.nodes if node.phase is Phase.SERVING]


async def _until(answers: "asyncio.Future[Any]") -> None:
    """Wait for all answers, and so long as a node hangs or is cut off at least."""
    await asyncio.gather(asyncio.wait([answers]), asyncio.sleep(HELD))


def _actor(server: int) -> psutil.Process:
    if actor := psutil.Process(server).parent():
        return actor
    raise psutil.NoSuchProcess(server)


def _workers(server: int) -> list[psutil.Process]:
    """Return the processes that compute for a server: those that its zygote has forked."""
    found = psutil.Process(server).children(recursive=True)
    if workers := [each for each in found if each.name().startswith("us:") and each.name() != "us:zygote"]:
        return workers
    raise psutil.NoSuchProcess(server)


@asynccontextmanager
async def own_cluster(cluster: Cluster) -> AsyncIterator["RunningCluster"]:
    """Start a cluster on a Ray of its own, and end both."""
    with tempfile.TemporaryDirectory(prefix="us-", dir="/tmp") as folder:  # paths of Ray's sockets must be short
        os.environ |= {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "token"}
        os.environ.pop("RAY_ADDRESS", None)
        import ray

        from unifiedserve.cluster.nodes.client import RunningCluster, connect
        from unifiedserve.cluster.nodes.head import start_ray

        own_ray, address = start_ray()
        try:
            connect(address)
            running = RunningCluster.begin(cluster, own_ray)
            await asyncio.to_thread(running.wait_ready, lambda _: None)
            yield running
        finally:
            ray.shutdown()  # it would end this process when it misses the other one
            own_ray.end()


def free_ports(count: int) -> tuple[int, ...]:
    """Return ports on which nobody listens."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(listener.getsockname()[1] for listener in listeners)
    for listener in listeners:
        listener.close()
    return ports


def planned(deaths: int) -> list[Kind]:
    """Return so many deaths of all kinds, in an order that is always the same."""
    kinds = list(islice(cycle(Kind), deaths))
    random.Random(0).shuffle(kinds)
    return kinds


async def measure(nodes: int, deaths: int, streams: int, tokens: int) -> list[Round]:
    """Return what the clients saw."""
    ports, rounds, left = free_ports(2), list[Round](), planned(deaths)
    pool = Pool(name="nodes", count=nodes, serve={**SMALL, "dtype": "float32", "torch-threads": 1})
    cluster = Cluster(pool=(pool,), router=RouterOptions(ports=ports))
    began = time.monotonic()
    async with own_cluster(cluster) as running, far_router() as far:
        cast = Cast(running, far, ports, tokens)
        await cast.learn()
        while left:
            if (round := await cast.next_round(left, streams)) is None:
                continue
            rounds.append(round)
            lost, wrong = sum(len(each.lost) for each in rounds), sum(each.wrong for each in rounds)
            pause = max(rounds[-1].pauses, default=0.0)
            told = f"{len(rounds)} deaths in {time.monotonic() - began:.0f} s, {lost} lost, {wrong} wrong; "
            print(f"{told}{pause:.2f} s: {rounds[-1].kind} {rounds[-1].lost or ''}", file=sys.stderr, flush=True)
    return rounds


def figures(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return what matters of some rounds."""
    pauses = [pause for each in rounds for pause in each.pauses]
    longest = [max(each.pauses) for each in rounds if each.pauses]
    return {
        "deaths": len(rounds),
        "answers": len(pauses) + sum(len(each.lost) for each in rounds),
        "lost": sum(len(each.lost) for each in rounds),
        "wrong": sum(each.wrong for each in rounds),
        "gone on elsewhere": sum(each.broken for each in rounds),
        "asked again": sum(each.asked_again for each in rounds),
        "longest pause of a death, s": {
            "p50": round(statistics.median(longest), 3),
            "p90": round(statistics.quantiles(longest, n=10, method="inclusive")[8], 3),
            "longest": round(max(longest), 3),
        }
        if len(longest) > 1
        else {},
        "deaths with a pause above 2 s": sum(pause > 2.0 for pause in longest),
    }


def main(
    nodes: Annotated[int, typer.Option(min=FEWEST + 1, help="Nodes of the cluster")] = 4,
    deaths: Annotated[int, typer.Option(min=1, help="How often something ends")] = 200,
    streams: Annotated[int, typer.Option(min=1, help="Answers that run then")] = 9,
    tokens: Annotated[int, typer.Option(min=4, help="Tokens of each answer")] = 384,
    path: Annotated[Path | None, typer.Option("--json", help="Where the figures are written to")] = None,
) -> None:
    """End nodes, workers, routers and connections under load, and tell what clients saw of it."""
    rounds = asyncio.run(measure(nodes, deaths, streams, tokens))
    told = {
        "command": " ".join(["python", *sys.argv]),
        "machine": describe_machine(),
        "all": figures(rounds),
        "by kind": {kind: figures(own) for kind in Kind if (own := [each for each in rounds if each.kind is kind])},
        "reasons": sorted({reason for each in rounds for reason in each.lost}),
    }
    print(json.dumps(told, indent=1))
    if path:
        path.write_bytes(
            msgspec.json.format(msgspec.json.encode({**told, "rounds": list(map(asdict, rounds))}), indent=1)
        )


if __name__ == "__main__":
    typer.run(main)
