"""Show a running daemon in the terminal."""

import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple

import httpx
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from unifiedserve.bench.client.connection import connect
from unifiedserve.cli.metrics_view import Quantiles, Sample, View, view_of
from unifiedserve.config import API_KEY, MIB
from unifiedserve.errors import ConfigError

_SILENCE = 10.0  # seconds
_BAR = 20  # columns
_UNKNOWN = "–"


class State(NamedTuple):
    """Hold what the daemon says of itself."""

    workers: str
    ready: str


def table(view: View, state: State, heading: str) -> RenderableType:
    """Return a view as it is printed."""
    over = "" if view.seconds is None else f" · figures over {view.seconds:,.1f} s"
    return Group(
        Text.assemble((heading, "bold"), (over, "dim")),
        Text(),
        _stages(view),
        Text(),
        _buffers(view),
        Text(),
        _figures(view, state),
    )


def _stages(view: View) -> Table:
    stages = _columns("stage", "running", "waiting")
    for name, (running, waiting) in view.stages.items():
        stages.add_row(name, f"{running}", Text(f"{waiting}", "yellow" if waiting else ""))
    return stages


def _buffers(view: View) -> Table:
    buffers = _columns("buffer", "", "used", "cached", "peak", "pages")
    for name, pages in view.buffers.items():
        use = pages.used / pages.total if pages.total else 0.0
        bar = ("█" * round(_BAR * use)).ljust(_BAR, "·")
        style = "red" if use > 0.95 else "green"
        buffers.add_row(
            name, Text(bar, style), f"{use:.0%}", f"{pages.cached:,}", f"{pages.peak:,}", f"{pages.total:,}"
        )
    return buffers


def _columns(first: str, *others: str) -> Table:
    columns = Table(box=None, pad_edge=False, header_style="dim")
    columns.add_column(first, min_width=16)
    for title in others:
        columns.add_column(title, justify="right")
    return columns


def _figures(view: View, state: State) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", min_width=16)
    for title, words in _lines(view, state):
        grid.add_row(title, Text(words))
    return grid


def _lines(view: View, state: State) -> Iterator[tuple[str, str]]:
    def rate(count: float) -> str:
        return _UNKNOWN if view.seconds is None else f"{count / view.seconds:,.1f}/s"

    yield "requests", f"{rate(view.requests)} · {rate(view.answers)} answers · {view.aborted:,.0f} clients left"
    yield "tokens", f"{rate(view.tokens)} generated · {rate(view.prompt_tokens)} of answered prompts"
    yield "first token", _latency(view.ttft)
    yield "between tokens", _latency(view.tbt)
    held = f"p99 {_time(view.held)} of {_time(view.target)}"
    yield "beside heavy work", f"{held} · it gets {_percent(view.share)} of its budgets"
    yield "found in caches", f"{_percent(view.prefixes)} of prompts · {_percent(view.visual)} of visual tokens"
    yield "preempted", f"{view.preempted:,.0f}"
    restarts = "" if view.restarts is None else f" · {view.restarts:,.0f} restarts"
    yield "workers", f"{state.workers}{restarts}"
    yield "new requests", state.ready
    if view.memory:
        yield "memory", " · ".join(f"{use} {size / MIB:,.0f} MiB" for use, size in view.memory.items())


def _latency(quantiles: Quantiles | None) -> str:
    return _UNKNOWN if quantiles is None else f"p50 {_time(quantiles.p50)} · p99 {_time(quantiles.p99)}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return _UNKNOWN
    return f"{seconds * 1000:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def _percent(share: float | None) -> str:
    return _UNKNOWN if share is None else f"{share:.0%}"


def run(url: str, interval: float, once: bool) -> int:
    """Show the daemon at `url` each `interval` seconds until Ctrl-C, or once; return the exit code.

    Raises ConfigError if there is no daemon, or it lets nobody in without a key.
    """
    console = Console(highlight=False)
    try:
        asyncio.run(_show(url, interval, console, once or not console.is_terminal))
    except KeyboardInterrupt:
        return 0  # it has no other end
    return 0


async def _show(url: str, interval: float, console: Console, once: bool) -> None:
    async with connect(url, _SILENCE) as client:
        sample, state = await _look(client)
        shown = table(view_of(None, sample), state, url)
        if once:
            console.print(shown)
            return
        with Live(shown, console=console, screen=True, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(interval)
                try:
                    before, (sample, state) = sample, await _look(client)
                    shown = table(view_of(before, sample), state, url)
                    live.update(shown, refresh=True)
                except ConfigError as error:  # it may come again
                    live.update(Group(Text(str(error), "red"), Text(), shown), refresh=True)


async def _look(client: httpx.AsyncClient) -> tuple[Sample, State]:
    """Return what the daemon says now. Raises ConfigError if it cannot be reached, or is none."""
    where = client.base_url
    try:
        metrics, health, ready = [await client.get(path) for path in ("/metrics", "/health", "/ready")]
    except httpx.HTTPError as error:
        raise ConfigError(f"the server at {where} cannot be reached: {error or type(error).__name__}") from error
    if metrics.status_code == httpx.codes.UNAUTHORIZED:
        raise ConfigError(f"the server at {where} needs an API key: set {API_KEY}")
    if metrics.is_error:
        raise ConfigError(f"{where}: /metrics answered {metrics.status_code}; is this a UnifiedServe server?")
    try:
        sample = Sample.parse(metrics.text, time.time())
    except ValueError as error:
        raise ConfigError(f"{where}: /metrics holds no metrics: {error}") from error
    if not sample.values:
        raise ConfigError(f"{where}: /metrics holds no figures of UnifiedServe: is this another server?")
    return sample, State(_says(health, "all alive"), _says(ready, "taken"))


def _says(response: httpx.Response, good: str) -> str:
    """Return what a probe's answer means: `good`, or the daemon's own words."""
    if response.is_success:
        return good
    try:
        body = response.json()
        return str(body.get("status") or body["error"]["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"answered {response.status_code}"
