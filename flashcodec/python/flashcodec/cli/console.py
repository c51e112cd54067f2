"""Print tables and pictures on stdout, errors and progress on stderr; plain text when piped."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text


def stdout() -> Console:
    return Console(highlight=False)


def complain(message: str) -> None:
    """Write one line to stderr, red on a terminal."""
    line = Text("flashcodec: " + " ".join(message.split()), style="red")
    Console(stderr=True, highlight=False).print(line, soft_wrap=True)


def progress_bar() -> Progress:
    """Make a bar on stderr, gone when done; nothing at all where that is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def heading(console: Console, text: str) -> None:
    console.print(Text(text, "bold"), soft_wrap=True)


def facts() -> Table:
    """Make an empty table of names and values, without lines."""
    table = plain_table(show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def plain_table(show_header: bool = True) -> Table:
    return Table(box=None, show_header=show_header, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))


def clock(seconds: float) -> str:
    """Write 83.25 as 1:23.250, and from an hour on 1:02:03.250. Times before the start are negative."""
    sign, milliseconds = "-" if seconds < 0 else "", round(abs(seconds) * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    tail = f"{rest / 1000:06.3f}"
    return f"{sign}{hours}:{minutes:02}:{tail}" if hours else f"{sign}{minutes}:{tail}"


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"
