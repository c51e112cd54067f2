"""How fast carriers bring pages from a process to another, beside bare copies of as many bytes in the same run.

Pages are read in no order; the bare copies have one area without gaps, compare no epochs and wake nobody. All of a
group take turns, and a figure is the median over repetitions with its quartiles. A transfer ends when `poll` has told
of it.
NIXL and Mooncake are measured after the others have been closed, because their threads look for work all the time.

    python bench/carriers.py --json bench/results/carriers.json --plot bench/results/carriers.png
"""

from __future__ import annotations

import json
import multiprocessing
import os
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from carrier_peers import BareMooncake, BareNixl, BareServer, bare_socket, memcpy
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ipc_buffers import Bell, MessageQueue, PagePool
from unifiedserve.carriers.base import Carrier
from unifiedserve.carriers.base import Copy as PageCopy
from unifiedserve.carriers.choose import open_carrier
from unifiedserve.carriers.setting import Setting
from unifiedserve.doctor.machine import describe_machine

KIB, MIB = 1 << 10, 1 << 20
PAGE_BYTES = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]
AT_ONCE = [1, 4, 16, 64, 256, 1024]
MOST_BYTES = 64 * MIB
SECONDS = 0.02  # of repeated transfers a figure and repetition, at least once
CARRIERS = ("shared", "tcp", "nixl")
Fetch = Callable[[int], None]  # of so many pages


class Offered(NamedTuple):
    """What a source's process tells of itself."""

    addresses: dict[str, str]
    pages: list[int]
    epochs: list[int]
    arena: str
    port: int
    nixl: tuple[bytes, int] | None
    mooncake: tuple[str, int] | None


class Point(NamedTuple):
    """A figure: GB/s and microseconds a page, median and quartiles."""

    carrier: str
    page_bytes: int
    pages: int
    gb_per_s: float
    gb_per_s_low: float
    gb_per_s_high: float
    us_per_page: float
    us_per_page_low: float
    us_per_page_high: float


def is_installed(package: str) -> bool:
    return find_spec(package) is not None


def groups() -> list[str]:
    """Return what is measured without the others being open: "own", and the packages that are installed."""
    return ["own", *filter(is_installed, ("nixl", "mooncake"))]


def kinds(group: str) -> list[str]:
    """Return the carriers of a group."""
    return {"own": ["shared", "tcp"], "nixl": ["nixl"]}.get(group, [])


def setting(token: str) -> Setting:
    return Setting("bench", token)


def make_pool(page_bytes: int) -> tuple[PagePool, NDArray[np.int32]]:
    """Return a pool, written to once, and its pages in no order."""
    count = min(max(AT_ONCE), MOST_BYTES // page_bytes)
    pool = PagePool.create(f"bench-{os.getpid()}-{time.monotonic_ns()}", count, page_bytes)
    pages = pool.allocate(count, 1)
    assert pages is not None
    np.frombuffer(pool.data(), np.uint8)[:] = np.random.default_rng(page_bytes).integers(0, 256, count * page_bytes)
    return pool, np.random.default_rng(1).permutation(pages)


def make_news() -> MessageQueue:
    return MessageQueue.create(f"bench-{os.getpid()}-{time.monotonic_ns()}", 256)


def serve(page_bytes: int, token: str, group: str, connection: Connection) -> None:
    """Offer pages by all carriers of a group until told to end; a process's main function."""
    pool, pages = make_pool(page_bytes)
    data = np.frombuffer(pool.data(), np.uint8)
    news = make_news()
    carriers = {kind: open_carrier(kind, setting(token), Bell(news, b"")) for kind in kinds(group)}
    try:
        for carrier in carriers.values():
            carrier.register({"kv": pool})
        nixl = BareNixl(f"source-{os.getpid()}") if group == "nixl" else None
        mooncake = BareMooncake() if group == "mooncake" else None
        addresses = {kind: carrier.address for kind, carrier in carriers.items()}
        bare = BareServer(data)
        by_nixl = nixl.offer(data) if nixl else None
        by_mooncake = mooncake.offer(data) if mooncake else None
        offered = Offered(
            addresses, pages.tolist(), pool.epochs(pages).tolist(), pool.name, bare.port, by_nixl, by_mooncake
        )
        connection.send(offered)
        connection.recv()
    finally:
        for carrier in carriers.values():
            carrier.shut()
        pool.unlink()
        news.unlink()


@contextmanager
def source_of(page_bytes: int, token: str, group: str) -> Iterator[Offered]:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=serve, args=(page_bytes, token, group, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        with suppress(OSError):
            here.send("end")
        process.join()


def fetch_by(carrier: Carrier, news: MessageQueue, offered: Offered, kind: str, into: list[int]) -> Fetch:
    """Return what reads pages by a carrier and waits for them as a worker does."""

    def fetch(count: int) -> None:
        copy = PageCopy("kv", offered.pages[:count], offered.epochs[:count], into[:count])
        transfer = carrier.read(offered.addresses[kind], [copy])
        while True:
            news.receive()
            for done in carrier.poll():
                if done.error:
                    raise RuntimeError(done.error)
                if done.transfer == transfer:
                    return

    return fetch


@contextmanager
def fetchers(page_bytes: int, group: str) -> Iterator[dict[str, Fetch]]:
    """Yield what is compared in a group for pages of a size; each copy has been done once, and was right."""
    token = secrets.token_hex(32)
    pool, into = make_pool(page_bytes)
    target = np.frombuffer(pool.data(), np.uint8)
    carriers: list[Carrier] = []
    heard: list[MessageQueue] = []
    with source_of(page_bytes, token, group) as offered:
        source = np.frombuffer(PagePool.attach(offered.arena).data(), np.uint8)
        found: dict[str, Fetch] = {}

        def bare(copy: Callable[[int], None]) -> Fetch:
            return lambda count: copy(count * page_bytes)

        if group == "own":
            found["memcpy"] = bare(memcpy(source, target))
            found["socket"] = bare(bare_socket(offered.port, target, from_file=False))
            found["sendfile"] = bare(bare_socket(offered.port, target, from_file=True))
        if offered.nixl:
            found["nixl, bare"] = bare(BareNixl(f"target-{os.getpid()}").reader(*offered.nixl, target, page_bytes))
        if offered.mooncake:
            found["mooncake, bare"] = bare(BareMooncake().reader(*offered.mooncake, target, page_bytes))
        try:
            for kind in kinds(group):
                heard.append(make_news())
                carrier = open_carrier(kind, setting(token), Bell(heard[-1], b""))
                carriers.append(carrier)
                carrier.register({"kv": pool})
                found[kind] = fetch_by(carrier, heard[-1], offered, kind, into.tolist())
            for name, fetch in found.items():
                check(name, fetch, source, target, offered.pages, into, page_bytes)
            yield found
        finally:
            for carrier in carriers:
                carrier.shut()
            pool.unlink()
            for news in heard:
                news.unlink()


def check(
    name: str,
    fetch: Fetch,
    source: NDArray[np.uint8],
    target: NDArray[np.uint8],
    pages: list[int],
    into: NDArray[np.int32],
    page_bytes: int,
) -> None:
    """Copy everything once, and compare; afterwards all memory has been touched and all connections are there."""
    target[:] = 0
    fetch(len(pages))
    there, here = source.reshape(-1, page_bytes), target.reshape(-1, page_bytes)
    same = (here[into] == there[pages]).all() if name in CARRIERS else (here == there).all()
    if not same:
        raise RuntimeError(f"{name} has copied something else")


def repeat(fetch: Fetch, count: int) -> list[float]:
    """Return how long transfers of so many pages took, one after the other, for a while."""
    taken: list[float] = []
    end = time.perf_counter() + SECONDS
    while not taken or time.perf_counter() < end:
        begin = time.perf_counter()
        fetch(count)
        taken.append(time.perf_counter() - begin)
    return taken


def measure(repetitions: int, sizes: list[int], console: Console) -> list[Point]:
    points = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(sizes) * len(groups()))
        for page_bytes in sizes:
            for group in groups():
                progress.update(task, description=f"pages of {page_bytes // KIB} KiB: {group}")
                points += measure_group(repetitions, page_bytes, group)
                progress.advance(task)
    return points


def measure_group(repetitions: int, page_bytes: int, group: str) -> list[Point]:
    counts = [count for count in AT_ONCE if count * page_bytes <= MOST_BYTES]
    taken: dict[tuple[str, int], list[float]] = {}
    with fetchers(page_bytes, group) as found:
        for _ in range(repetitions):
            for count in counts:
                for name, fetch in found.items():
                    taken.setdefault((name, count), []).append(statistics.median(repeat(fetch, count)))
    return [point(name, page_bytes, count, seconds) for (name, count), seconds in taken.items()]


def point(name: str, page_bytes: int, count: int, seconds: list[float]) -> Point:
    low, median, high = np.percentile(seconds, [25, 50, 75]).tolist()
    rates = [count * page_bytes / value / 1e9 for value in (median, high, low)]
    return Point(name, page_bytes, count, *rates, *(1e6 * value / count for value in (median, low, high)))


def targets(points: list[Point]) -> dict[str, float]:
    """Return what carriers are held to: rates with the most pages of 64 KiB, and one page's time."""
    by = {(point.carrier, point.pages): point for point in points if point.page_bytes == 64 * KIB}
    most = max(count for _, count in by)
    wholes = {name: by[name, most].gb_per_s for name, _ in by}
    found = {
        "tcp, GB/s": wholes["tcp"],
        "tcp, us for one page": by["tcp", 1].us_per_page,
        "tcp / bare socket": wholes["tcp"] / wholes["socket"],
        "tcp / sendfile": wholes["tcp"] / wholes["sendfile"],
        "shared / memcpy": wholes["shared"] / wholes["memcpy"],
    }
    if "nixl" in wholes:
        found["nixl / bare NIXL"] = wholes["nixl"] / wholes["nixl, bare"]
    return found


def table_of(points: list[Point]) -> Table:
    table = Table(title="GB/s (quartiles); microseconds a page")
    names = list(dict.fromkeys(point.carrier for point in points))
    for column in ("page", "at once", *names):
        table.add_column(column, justify="right")
    by = {(point.page_bytes, point.pages, point.carrier): point for point in points}
    for page_bytes, count in dict.fromkeys((point.page_bytes, point.pages) for point in points):
        cells = [by[page_bytes, count, name] for name in names]
        told = [
            f"{cell.gb_per_s:.2f} ({cell.gb_per_s_low:.2f}-{cell.gb_per_s_high:.2f}); {cell.us_per_page:.1f}"
            for cell in cells
        ]
        table.add_row(f"{page_bytes // KIB} KiB", str(count), *told)
    return table


def draw(path: Path, points: list[Point]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(point.carrier for point in points))
    figure, (rates, sizes, single) = pyplot.subplots(1, 3, figsize=(14, 4.4))
    for number, name in enumerate(names):
        style = {"color": f"C{number}", "linestyle": "-" if name in CARRIERS else ":", "marker": "o", "markersize": 4}
        own = [point for point in points if point.carrier == name]
        medium = [point for point in own if point.page_bytes == 64 * KIB]
        line(rates, [point.pages for point in medium], medium, "gb_per_s", {**style, "label": name})
        largest = [
            max((point for point in own if point.page_bytes == size), key=lambda point: point.pages)
            for size in dict.fromkeys(point.page_bytes for point in own)
        ]
        line(sizes, [point.page_bytes / KIB for point in largest], largest, "gb_per_s", style)
        ones = [point for point in own if point.pages == 1]
        line(single, [point.page_bytes / KIB for point in ones], ones, "us_per_page", style)
    kib = sorted({point.page_bytes // KIB for point in points})
    for axis, ticks, title, x, y in (
        (rates, AT_ONCE, "pages of 64 KiB", "pages at once", "GB/s"),
        (sizes, kib, "as many pages as 64 MiB or 1,024", "KiB a page", "GB/s"),
        (single, kib, "one page", "KiB a page", "µs until it is told"),
    ):
        axis.set(title=title, xlabel=x, ylabel=y, xscale="log", yscale="log")
        axis.set_xticks(ticks, labels=map(str, ticks))
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    figure.legend(loc="lower center", ncols=len(names), frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=120)


def line(axis: Any, x: list[float], points: list[Point], figure: str, style: dict[str, Any]) -> None:
    """Draw medians, and the quartiles around them."""
    axis.plot(x, [getattr(point, figure) for point in points], **style)
    low, high = ([getattr(point, f"{figure}_{end}") for point in points] for end in ("low", "high"))
    axis.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def main(
    repetitions: Annotated[int, typer.Option()] = 9,
    page_kib: Annotated[list[int] | None, typer.Option(help="sizes of pages; all without it")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="where figures are written")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="where the picture is written")] = None,
) -> None:
    """Measure carriers beside bare copies."""
    console = Console()
    sizes = [kib * KIB for kib in page_kib] if page_kib else PAGE_BYTES
    points = measure(repetitions, sizes, console)
    console.print(table_of(points))
    held_to = targets(points) if 64 * KIB in sizes else {}
    for name, value in held_to.items():
        console.print(f"{name}: {value:.2f}")
    report = {
        "machine": describe_machine(),
        "load_average": round(os.getloadavg()[0], 1),
        "repetitions": repetitions,
        "targets": held_to,
        "points": [point._asdict() for point in points],
    }
    if json_file:
        json_file.write_text(json.dumps(report, indent=1) + "\n")
    if plot_file:
        draw(plot_file, points)


if __name__ == "__main__":
    typer.run(main)
