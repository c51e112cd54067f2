"""Show how a run goes on, in the terminal."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from unifiedserve.bench.client.clock import Clock
from unifiedserve.bench.run.watch import Watch

_REFRESH = 0.25  # seconds


class Bar:
    """Show a bar of the turns that have ended. The rate, the TTFT of the latest and the failures stand beside it."""

    def __init__(self, progress: Progress, title: str, turns: int) -> None:
        self._progress = progress
        self._task = progress.add_task(escape(title), total=turns, figures="")

    async def follow(self, watch: Watch, clock: Clock) -> None:
        """Show how the run goes on until cancelled."""
        while True:
            self.show(watch, clock.now())
            await asyncio.sleep(_REFRESH)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text, style="dim", markup=False)

    def show(self, watch: Watch, seconds: float) -> None:
        """Show where the run is after so many seconds."""
        ended = watch.answered + watch.failed
        figures = [f"{ended / seconds:.2f}/s" if seconds > 0 else "", f"{len(watch.records) - ended} under way"]
        if watch.ttft is not None:
            figures.append(f"TTFT {watch.ttft:.2f} s")
        if watch.failed:
            figures.append(f"[red]{watch.failed} failed[/]")
        self._progress.update(self._task, completed=ended, figures=" · ".join(filter(None, figures)))


@contextmanager
def shown(console: Console) -> Iterator[Progress]:
    """Show bars on the console, if it is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield progress
