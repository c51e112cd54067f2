"""What clients see of it when the nodes of a cluster are killed under load, again and again.

A cluster of its own comes up on this machine. Clients stream greedy answers through its router, one after another,
while servers and the actors that keep them are killed by SIGKILL, in turns. Each answer is compared with that of before
the first kill. A cut is the longest pause between two pieces of an answer that ran when a node was killed.

    python bench/cluster_faults.py --deaths 200 --json bench/results/cluster_faults.json
"""

import asyncio
import json
import os
import random
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import msgspec
import psutil
import typer

from unifiedserve.cluster.cluster_file import Cluster, Pool, RouterOptions
from unifiedserve.cluster.nodes.reports import NodeReport, Phase
from unifiedserve.doctor.machine import describe_machine

if TYPE_CHECKING:
    from unifiedserve.cluster.nodes.client import RunningCluster

QUESTIONS = ["What can you see?", "Which shapes are there?", "Where is the red circle?", "How many are there?"]
PATIENCE = 60.0  # seconds for a piece of an answer
FEWEST = 2  # nodes that serve when another one is killed
SMALL = {"kv-cache-mib": 64, "patch-buffer-mib": 32, "visual-buffer-mib": 16, "visual-cache-mib": 16}


@dataclass
class Seen:
    """What the clients saw, and what was done to the nodes."""

    deaths: int = 0
    answers: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: int = 0
    cuts: list[float] = field(default_factory=list)  # seconds, of answers that ran when a node was killed
    calm: list[float] = field(default_factory=list)  # seconds, the same of all others


class Clients:
    """Those that ask for answers of `tokens` tokens through the router at `url`."""

    def __init__(self, url: str, tokens: int) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False)
        self._tokens = tokens
        self._expected: dict[str, str] = {}
        self.seen = Seen()
        self.over = asyncio.Event()

    async def learn(self) -> None:
        """Ask each question once, undisturbed."""
        for question in QUESTIONS:
            self._expected[question], _ = await self._stream(question)

    async def ask_on(self, seed: int) -> None:
        """Ask one question after another until it is over."""
        chosen = random.Random(seed)
        while not self.over.is_set():
            question = chosen.choice(QUESTIONS)
            deaths = self.seen.deaths
            self.seen.answers += 1
            try:
                answer, pause = await self._stream(question)
            except (httpx.HTTPError, ValueError) as error:
                self.seen.lost.append(f"{type(error).__name__}: {error}")
                continue
            self.seen.wrong += answer != self._expected[question]
            (self.seen.cuts if self.seen.deaths > deaths else self.seen.calm).append(pause)

    async def _stream(self, question: str) -> tuple[str, float]:
        """Return an answer, and the longest pause in it. Raises HTTPError or ValueError for one that is cut short."""
        body = {
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": self._tokens,
            "ignore_eos": True,
            "stream": True,
        }
        pieces, last, pause, finished = [], time.monotonic(), 0.0, False
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.is_error:
                await response.aread()
                raise ValueError(f"{response.status_code}: {response.text[:200]}")
            async for line in response.aiter_lines():
                now = time.monotonic()
                pause, last = max(pause, now - last), now
                if line == "data: [DONE]":
                    finished = True
                elif line.startswith("data: "):
                    pieces.append(_piece(json.loads(line[6:])))
        if not finished:
            raise ValueError("the stream ended early")
        return "".join(pieces), pause


def _piece(event: dict[str, Any]) -> str:
    if "error" in event:
        raise ValueError(event["error"]["message"])
    choices = event.get("choices") or [{}]
    return str((choices[0].get("delta") or {}).get("content") or "")


async def kill_on(running: "RunningCluster", seen: Seen, deaths: int, pause: float) -> None:
    """Kill a node's server or its actor, whenever enough others serve."""
    chosen = random.Random(0)
    while seen.deaths < deaths:
        await asyncio.sleep(pause)
        status = await asyncio.to_thread(running.status)
        serving = [node for pool in status.pools for node in pool.nodes if node.phase is Phase.SERVING]
        if len(serving) > FEWEST:
            seen.deaths += 1
            _kill(chosen.choice(serving), its_actor=seen.deaths % 2 == 0)
            told = f"{seen.deaths} deaths, {seen.answers} answers, {len(seen.lost)} lost, {seen.wrong} wrong"
            print(told, file=sys.stderr, flush=True)


def _kill(node: NodeReport, its_actor: bool) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(node.pid)
        actor = process.parent()
        os.kill(actor.pid if its_actor and actor else process.pid, signal.SIGKILL)


@asynccontextmanager
async def own_cluster(cluster: Cluster) -> AsyncIterator["RunningCluster"]:
    """Start a cluster on a Ray of its own, and end both."""
    with tempfile.TemporaryDirectory(prefix="us-", dir="/tmp") as folder:  # paths of Ray's sockets must be short
        os.environ |= {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "token"}
        os.environ.pop("RAY_ADDRESS", None)
        from unifiedserve.cluster.nodes.client import RunningCluster, connect
        from unifiedserve.cluster.nodes.head import start_ray

        own_ray, address = start_ray()
        try:
            connect(address)
            running = RunningCluster.begin(cluster, own_ray)
            await asyncio.to_thread(running.wait_ready, lambda _: None)
            yield running
        finally:
            own_ray.end()


async def measure(nodes: int, deaths: int, clients: int, tokens: int, pause: float) -> Seen:
    """Return what the clients saw."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    pool = Pool(name="nodes", count=nodes, serve={**SMALL, "dtype": "float32", "torch-threads": 1})
    async with own_cluster(Cluster(pool=(pool,), router=RouterOptions(ports=(port,)))) as running:
        asking = Clients(f"http://127.0.0.1:{port}", tokens)
        await asking.learn()
        tasks = [asyncio.create_task(asking.ask_on(number)) for number in range(clients)]
        await kill_on(running, asking.seen, deaths, pause)
        asking.over.set()
        await asyncio.gather(*tasks)
    return asking.seen


def main(
    nodes: Annotated[int, typer.Option(min=FEWEST + 1, help="Nodes of the cluster")] = 4,
    deaths: Annotated[int, typer.Option(min=1, help="How often a node is killed")] = 200,
    clients: Annotated[int, typer.Option(min=1, help="Clients that ask at the same time")] = 4,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of each answer")] = 256,
    pause: Annotated[float, typer.Option(min=0.1, help="Seconds between two kills, at least")] = 2.0,
    path: Annotated[Path | None, typer.Option("--json", help="Where the figures are written to")] = None,
) -> None:
    """Kill nodes under load, and tell what clients saw of it."""
    seen = asyncio.run(measure(nodes, deaths, clients, tokens, pause))
    figures = {
        "machine": describe_machine(),
        "options": {"nodes": nodes, "clients": clients, "tokens": tokens, "pause": pause},
        "deaths": seen.deaths,
        "answers": seen.answers,
        "lost": len(seen.lost),
        "wrong": seen.wrong,
        "reasons": sorted(set(seen.lost)),
        "cut": _quantiles(seen.cuts),
        "pause elsewhere": _quantiles(seen.calm),
    }
    print(json.dumps(figures, indent=1))
    if path:
        path.write_bytes(msgspec.json.format(msgspec.json.encode({**figures, "seen": asdict(seen)}), indent=1))


def _quantiles(seconds: list[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    hundredths = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50": hundredths[49], "p99": hundredths[98], "longest": max(seconds), "answers": len(seconds)}


if __name__ == "__main__":
    typer.run(main)
