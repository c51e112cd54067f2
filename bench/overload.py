"""What is left of a server's throughput when ten times as much is asked of it as it can do.

First some clients ask one question after another: what is answered then is the capacity. Then questions arrive at
ten times that rate, whatever becomes of those before; nobody waits for as long as a refusal says. Rounds of both take
turns on one daemon.

    python bench/overload.py --model CHECKPOINT --rounds 3 --json bench/results/overload.json
"""

import asyncio
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from serve_cpu.memory import proportional_set_size

from unifiedserve.cli.daemon import daemon
from unifiedserve.config import MIB
from unifiedserve.doctor.machine import describe_machine

TIMES = 10  # as much as it can do
PATIENCE = 120.0  # seconds for an answer
QUESTION = "Which shapes are there, what do they do, and in which order do they do it? " * 2


@dataclass
class Load:
    """What came of some seconds of questions."""

    begin: float  # monotonic seconds, from when on answers count
    seconds: float
    asked: int = 0
    took: list[float] = field(default_factory=list)  # seconds of each complete answer that came in that time
    statuses: Counter[int] = field(default_factory=Counter)
    refused_without_wait: int = 0  # 429 without Retry-After
    refusal: list[float] = field(default_factory=list)  # seconds until each

    @property
    def rate(self) -> float:
        """Complete answers a second."""
        return len(self.took) / self.seconds


class Clients:
    """Those that ask for `tokens` tokens each; answers of the first `lead` seconds of a load do not count."""

    def __init__(self, http: httpx.AsyncClient, tokens: int, lead: float) -> None:
        self._http, self._lead = http, lead
        self._body: dict[str, Any] = {
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
        }

    async def in_turn(self, clients: int, seconds: float) -> Load:
        """Let each client ask again and again."""
        load = Load(time.monotonic() + self._lead, seconds)
        end = load.begin + seconds

        async def client() -> None:
            while time.monotonic() < end:
                await self._ask(load, end)

        await _for(self._lead + seconds, [client] * clients)
        return load

    async def at_rate(self, rate: float, seconds: float) -> Load:
        """Ask `rate` questions a second, at equal distances."""
        begin = time.monotonic()
        load = Load(begin + self._lead, seconds)
        end = load.begin + seconds
        asking: set[asyncio.Task[None]] = set()
        while (now := time.monotonic()) < end:
            while load.asked < (now - begin) * rate:
                task = asyncio.create_task(self._ask(load, end))
                asking.add(task)
                task.add_done_callback(asking.discard)
                await asyncio.sleep(0)
            await asyncio.sleep(1 / rate)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        return load

    async def _ask(self, load: Load, end: float) -> None:
        begin = time.monotonic()
        load.asked += 1
        response = await self._http.post("/v1/chat/completions", json=self._body)
        now = time.monotonic()
        load.statuses[response.status_code] += 1
        if response.is_success and load.begin <= now <= end:
            load.took.append(now - begin)
        elif response.is_error:
            load.refusal.append(now - begin)
            load.refused_without_wait += "retry-after" not in response.headers


async def _for(seconds: float, clients: list[Callable[[], Awaitable[None]]]) -> None:
    """Let clients go on for so long; then they leave."""
    tasks = [asyncio.ensure_future(client()) for client in clients]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Round:
    """The capacity, what is left of it, and the daemon's memory (PSS of all its processes, MiB) after each."""

    capacity: Load
    overload: Load
    memory: tuple[float, float]

    @property
    def left(self) -> float:
        return self.overload.rate / self.capacity.rate


async def _round(http: httpx.AsyncClient, pid: int, clients: int, tokens: int, lead: float, seconds: float) -> Round:
    asking = Clients(http, tokens, lead)
    capacity = await asking.in_turn(clients, seconds)
    before = _memory(pid)
    overload = await asking.at_rate(TIMES * capacity.rate, seconds)
    return Round(capacity, overload, (before, _memory(pid)))


def _memory(pid: int) -> float:
    return proportional_set_size(pid) / MIB


def _table(rounds: list[Round], lead: float) -> Table:
    table = Table(title=f"{TIMES} times what the server can do")
    for name in ("", "asked/s", "answered/s", "took p50, p99 s", "refused", "of 503 and 500", "refused after p50 ms"):
        table.add_column(name, justify="right" if name else "left")
    for number, each in enumerate(rounds, 1):
        for name, load in ("capacity", each.capacity), ("overload", each.overload):
            table.add_row(
                f"{number} {name}",
                f"{load.asked / (lead + load.seconds):.1f}",
                f"{load.rate:.1f}",
                _quantiles(load.took),
                str(load.statuses[429]),
                str(load.statuses[503] + load.statuses[500]),
                f"{statistics.median(load.refusal) * 1e3:.1f}" if load.refusal else "",
            )
    return table


def _quantiles(values: list[float]) -> str:
    if len(values) < 2:
        return ""
    return f"{statistics.median(values):.2f}, {statistics.quantiles(values, n=100)[98]:.2f}"


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="Of each of the two loads, which are counted")] = 40.0,
    lead: Annotated[float, typer.Option(min=0, help="Seconds of each load before that")] = 30.0,
    clients: Annotated[int, typer.Option(min=1, help="That ask in turn, to find the capacity")] = 64,
    tokens: Annotated[int, typer.Option(min=1, help="Of each answer")] = 96,
    model: Annotated[str, typer.Option(help="Checkpoint; empty: the bundled one, of which HTTP takes most")] = "",
    results: Annotated[Path | None, typer.Option("--json", help="Write the figures here")] = None,
) -> None:
    """Measure what is left of the throughput under ten times the load."""
    console = Console()

    async def measure(url: str, pid: int) -> list[Round]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as http:
            return [
                await _round(http, pid, clients, tokens, lead, seconds)
                for _ in track(range(rounds), "rounds", console=Console(stderr=True))
            ]

    with daemon(model) as served:
        measured = asyncio.run(measure(served.url, served.process.pid))
    console.print(_table(measured, lead))
    left = [each.left for each in measured]
    console.print(f"left of the throughput: {statistics.median(left):.2f} ({min(left):.2f} - {max(left):.2f})")
    if results is not None:
        figures = {
            "command": f"python bench/overload.py {' '.join(sys.argv[1:])}".replace(model or "?", "CHECKPOINT"),
            "machine": describe_machine(),
            "left": left,
            "rounds": [_summary(each) for each in measured],
        }
        results.write_text(json.dumps(figures, indent=1) + "\n")


def _summary(each: Round) -> dict[str, Any]:
    def of(load: Load) -> dict[str, Any]:
        figures = asdict(load) | {"rate": load.rate, "statuses": dict(load.statuses), "took": _quantiles(load.took)}
        return figures | {"refusal": _quantiles(load.refusal)}

    return {"capacity": of(each.capacity), "overload": of(each.overload), "memory MiB": each.memory, "left": each.left}


if __name__ == "__main__":
    typer.run(main)
