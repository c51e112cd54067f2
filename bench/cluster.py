"""What a router in front of an engine costs, and how long it takes to choose among a thousand nodes.

A daemon is asked directly and through a router, in turns, so that both see the same machine: single short texts one
after the other for the time to the first token, then several streams at once for tokens a second.

    python bench/cluster.py --rounds 20 --json bench/results/cluster.json
"""

import asyncio
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from unifiedserve.cli.daemon import READY, daemon
from unifiedserve.cluster.routing import Fleet, Policy, Request
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.errors import ConfigError
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.load import EngineLoad
from unifiedserve.scheduling import Work

CHAT = "/v1/chat/completions"
WARM_UP = 3  # requests on each way
QUESTION = "Name a shape, and say what it does."


@contextlib.contextmanager
def router(*nodes: str) -> Iterator[str]:
    """Start a router in front of these nodes, yield its URL when it serves, and end it."""
    command = [sys.executable, "-m", "unifiedserve.cli", "router", "--nodes", ",".join(nodes), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if match := READY.match(line.rstrip("\n")):
                yield match[1]
                return
        raise ConfigError(f"the router ended with code {process.wait()} before it was ready")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


@dataclass
class Way:
    """A way to the engine, and what was measured on it."""

    url: str
    firsts: list[float] = field(default_factory=list)  # seconds to the first token
    rates: list[float] = field(default_factory=list)  # tokens a second, of all streams together


class Client:
    """Asks for streams of an exact length."""

    def __init__(self, http: httpx.AsyncClient, texts: int) -> None:
        self._http = http
        self._texts = texts
        self._number = 0

    async def ask(self, url: str, tokens: int) -> float:
        """Read an answer of so many tokens; return the seconds to its first one."""
        self._number += 1
        content = f"{self._number}. {QUESTION} " * self._texts  # a prompt that no cache has
        body = {
            "messages": [{"role": "user", "content": content}],
            "stream": True,
            "temperature": 0,
            "max_tokens": tokens,
            "ignore_eos": True,
        }
        began, first = time.perf_counter(), 0.0
        async with self._http.stream("POST", url + CHAT, json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if not first and '"content":"' in line and '"content":""' not in line:
                    first = time.perf_counter() - began
        return first

    async def together(self, url: str, streams: int, tokens: int) -> float:
        """Return the tokens a second of so many streams at once."""
        began = time.perf_counter()
        await asyncio.gather(*[self.ask(url, tokens) for _ in range(streams)])
        return streams * tokens / (time.perf_counter() - began)


async def measure(ways: list[Way], rounds: int, singles: int, streams: int, tokens: int) -> None:
    """Measure all ways in turns, each round in the other order."""
    async with httpx.AsyncClient(timeout=300, limits=httpx.Limits(max_connections=None)) as http:
        client = Client(http, texts=2)
        for way in ways:
            for _ in range(WARM_UP):
                await client.ask(way.url, 4)
        for number in track(range(rounds), "rounds", transient=True):
            for way in ways if number % 2 else reversed(ways):
                way.firsts += [await client.ask(way.url, 4) for _ in range(singles)]
            for way in ways if number % 2 else reversed(ways):
                way.rates.append(await client.together(way.url, streams, tokens))


def decision_seconds(nodes: int, policy: Policy, decisions: int) -> float:
    """Return the median seconds of a decision among so many nodes, which report all the time; half of them are idle."""
    draw = np.random.default_rng(0)
    fleet = Fleet(policy)
    costs = Costs(decode=0.02, prompt_token=2e-4, visual_token=3e-4, image_pixel=1e-8, video_second=1.0)
    names = [f"node-{number}" for number in range(nodes)]
    loads = [EngineLoad(costs=costs)] * 2
    for name in names:
        loads[1] = EngineLoad(wait=float(draw.exponential(2)), in_flight=int(draw.integers(50)), costs=costs)
        fleet.update(name, loads[int(draw.integers(2))])
    took = []
    for number in range(decisions):
        fleet.update(names[number % nodes], EngineLoad(wait=float(draw.exponential(2)), in_flight=9, costs=costs))
        fleet.update(names[(number + nodes // 2) % nodes], loads[0])
        work = Work(prompt_tokens=int(draw.integers(50, 5000)), visual_tokens=int(draw.integers(0, 4000)))
        request = Request(work, key=f"{number}", cached=Work(prompt_tokens=40), known=names[number % nodes :][:2])
        began = time.perf_counter()
        fleet.choose(request)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def summary(direct: Way, routed: Way) -> dict[str, Any]:
    """Return what the router adds."""
    quantiles = {name: [float(np.quantile(way.firsts, q)) for way in (direct, routed)] for name, q in QUANTILES.items()}
    rates = [statistics.median(way.rates) for way in (direct, routed)]
    return {
        **{f"ttft_{name}_ms": [round(seconds * 1e3, 2) for seconds in pair] for name, pair in quantiles.items()},
        "tokens_a_second": [round(rate, 1) for rate in rates],
        "rate_ratio": rates[1] / rates[0],
    }


QUANTILES = {"p50": 0.5, "p99": 0.99}


def table(found: dict[str, Any], decisions: dict[str, float]) -> Table:
    """Return all figures in rows."""
    rows = Table("", "direct", "by a router", "the router adds")
    for name in QUANTILES:
        direct, routed = found[f"ttft_{name}_ms"]
        rows.add_row(f"first token, {name}, ms", f"{direct:.2f}", f"{routed:.2f}", f"{routed - direct:+.2f}")
    direct, routed = found["tokens_a_second"]
    rows.add_row("tokens a second", f"{direct:.1f}", f"{routed:.1f}", f"{found['rate_ratio'] - 1:+.1%}")
    for policy, microseconds in decisions.items():
        rows.add_row(f"decision by {policy}, µs", "", "", f"{microseconds:.1f}")
    return rows


def main(
    model: Annotated[str, typer.Option(help="A directory or a hub id. Empty: the bundled model")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Turns of both ways")] = 20,
    singles: Annotated[int, typer.Option(min=1, help="Single requests of each way in a round")] = 20,
    streams: Annotated[int, typer.Option(min=1, help="Streams at once")] = 8,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each of them")] = 64,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes among which a decision is timed")] = 1000,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save the figures")] = None,
) -> None:
    """Measure what a router costs."""
    decisions = {str(policy): decision_seconds(nodes, policy, 2000) * 1e6 for policy in Policy}
    with daemon(model) as server, router(server.url) as url:
        direct, routed = Way(server.url), Way(url)
        asyncio.run(measure([direct, routed], rounds, singles, streams, tokens))
    found = summary(direct, routed)
    Console().print(table(found, decisions))
    if json_file is not None:
        told = {
            "command": " ".join(["python", *sys.argv]),
            "machine": describe_machine(),
            **found,
            "decision_us": decisions,
            "nodes": nodes,
            "firsts": {"direct": direct.firsts, "routed": routed.firsts},
            "rates": {"direct": direct.rates, "routed": routed.rates},
        }
        json_file.write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    typer.run(main)
