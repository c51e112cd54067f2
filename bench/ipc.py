"""Messages between two processes: ipc_buffers beside multiprocessing.Queue, multiprocessing.Pipe and ZeroMQ ipc.

One-way latency is the receiver's CLOCK_MONOTONIC minus the sender's, which travels in the message; "asleep" paces the
sender so that the receiver sleeps in the kernel, "ping-pong" answers each message at once, on cores that the kernel
chooses or, "own cores", on one each. Repetitions of all
transports are interleaved, and a figure is the median over repetitions with the lowest and highest.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import zmq
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ipc_buffers import MessageQueue

SMALL, LARGE = 256, 64 << 10
CAPACITY = 4 << 20
PAUSE_SECONDS = 0.001
SPAWN = multiprocessing.get_context("spawn")


class Channel(Protocol):
    """One direction between two processes; opened by its first use in each."""

    def send(self, message: bytes) -> None: ...
    def receive(self) -> bytes: ...


class IpcBuffers:
    def __init__(self, stack: ExitStack) -> None:
        self.name = f"bench-{os.getpid()}-{time.monotonic_ns()}"
        self._queue = MessageQueue.create(self.name, CAPACITY)
        stack.callback(self._queue.unlink)

    def send(self, message: bytes) -> None:
        self._queue.send(message)

    def receive(self) -> bytes:
        return self._queue.receive() or b""

    def __getstate__(self) -> str:
        return self.name

    def __setstate__(self, name: str) -> None:
        self.name, self._queue = name, MessageQueue.attach(name)


class Pipe:
    def __init__(self, stack: ExitStack) -> None:
        self.source, self.target = SPAWN.Pipe(duplex=False)
        stack.callback(self.source.close)
        stack.callback(self.target.close)

    def send(self, message: bytes) -> None:
        self.target.send_bytes(message)

    def receive(self) -> bytes:
        return self.source.recv_bytes()


class Queue:
    def __init__(self, stack: ExitStack) -> None:
        self.queue = SPAWN.Queue()
        stack.callback(self.queue.close)

    def send(self, message: bytes) -> None:
        self.queue.put(message)

    def receive(self) -> bytes:
        return self.queue.get()  # type: ignore[no-any-return]


class ZeroMq:
    def __init__(self, stack: ExitStack) -> None:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        self.address = f"ipc://{folder}/socket"
        self._socket: zmq.Socket[bytes] | None = None
        stack.callback(self._close)

    def __getstate__(self) -> str:
        return self.address

    def __setstate__(self, address: str) -> None:
        self.address, self._socket = address, None

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close(linger=0)

    def send(self, message: bytes) -> None:
        if self._socket is None:
            self._socket = zmq.Context.instance().socket(zmq.PUSH)
            self._socket.bind(self.address)
        self._socket.send(message)

    def receive(self) -> bytes:
        if self._socket is None:
            self._socket = zmq.Context.instance().socket(zmq.PULL)
            self._socket.connect(self.address)
        return self._socket.recv()


TRANSPORTS: dict[str, Callable[[ExitStack], Channel]] = {
    "ipc_buffers": IpcBuffers,
    "multiprocessing.Pipe": Pipe,
    "multiprocessing.Queue": Queue,
    "ZeroMQ ipc": ZeroMq,
}


def stamped(size: int) -> bytes:
    return time.monotonic_ns().to_bytes(8, "little") + bytes(size - 8)


def age_us(message: bytes) -> float:
    return (time.monotonic_ns() - int.from_bytes(message[:8], "little")) / 1e3


def receive_ages(there: Channel, back: Channel | None, count: int, results: Connection) -> None:
    ages = []
    for _ in range(count):
        ages.append(age_us(there.receive()))
        if back is not None:
            back.send(b"received")
    results.send(ages)


def receive_all(there: Channel, back: Channel | None, count: int, results: Connection) -> None:
    for _ in range(count):
        there.receive()
    results.send(time.monotonic())


@dataclass(frozen=True)
class Sizes:
    latencies: int
    small: int
    large: int


def run_receiver(
    transport: str,
    work: Callable[..., None],
    count: int,
    answers: bool,
    send: Callable[[Channel, Channel | None], None],
    own_cores: bool = False,
) -> Any:
    """Start the receiving process, send it a message to warm up and then what `send` does; return its result."""
    with ExitStack() as stack:
        there = TRANSPORTS[transport](stack)
        back = TRANSPORTS[transport](stack) if answers else None
        results, results_target = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(target=warm_up_and, args=(work, there, back, count, results_target))
        process.start()
        if own_cores:
            pin(stack, process.pid)
        there.send(stamped(SMALL))
        results.recv()
        send(there, back)
        result = results.recv()
        process.join()
        return result


def pin(stack: ExitStack, receiver: int | None) -> None:
    """Give this process and the receiver a core each, and this one its freedom back in the end."""
    cores = os.sched_getaffinity(0)
    assert receiver is not None
    os.sched_setaffinity(receiver, {max(cores)})
    os.sched_setaffinity(0, {min(cores)})
    stack.callback(os.sched_setaffinity, 0, cores)


def warm_up_and(
    work: Callable[..., None], there: Channel, back: Channel | None, count: int, results: Connection
) -> None:
    there.receive()
    results.send("ready")
    work(there, back, count, results)


def latency(transport: str, count: int, *, asleep: bool, own_cores: bool = False) -> dict[str, float]:
    def send(there: Channel, back: Channel | None) -> None:
        for _ in range(count):
            if back is None:
                time.sleep(PAUSE_SECONDS)
            there.send(stamped(SMALL))
            if back is not None:
                back.receive()

    ages = sorted(run_receiver(transport, receive_ages, count, not asleep, send, own_cores))
    return {"p50_us": ages[count // 2], "p99_us": ages[count * 99 // 100]}


def throughput(transport: str, count: int, size: int) -> dict[str, float]:
    message = bytes(size)
    start = 0.0

    def send(there: Channel, back: Channel | None) -> None:
        nonlocal start
        start = time.monotonic()
        for _ in range(count):
            there.send(message)

    seconds = run_receiver(transport, receive_all, count, False, send) - start
    return {"messages_per_s": count / seconds, "mb_per_s": count * size / seconds / 1e6}


def measurements(sizes: Sizes) -> dict[str, Callable[[str], dict[str, float]]]:
    return {
        "latency 256 B, asleep": lambda transport: latency(transport, sizes.latencies, asleep=True),
        "latency 256 B, ping-pong": lambda transport: latency(transport, sizes.latencies, asleep=False),
        "latency 256 B, ping-pong, own cores": lambda transport: latency(
            transport, sizes.latencies, asleep=False, own_cores=True
        ),
        "throughput 256 B": lambda transport: throughput(transport, sizes.small, SMALL),
        "throughput 64 KiB": lambda transport: throughput(transport, sizes.large, LARGE),
    }


Figures = dict[str, dict[str, dict[str, list[float]]]]  # measurement → transport → figure → one a repetition


def measure(repetitions: int, sizes: Sizes, console: Console) -> Figures:
    figures: Figures = {}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=repetitions * len(measurements(sizes)) * len(TRANSPORTS))
        for _ in range(repetitions):
            for name, run in measurements(sizes).items():
                for transport in TRANSPORTS:
                    progress.update(task, description=f"{name}: {transport}")
                    for figure, value in run(transport).items():
                        figures.setdefault(name, {}).setdefault(transport, {}).setdefault(figure, []).append(value)
                    progress.advance(task)
    return figures


def summarise(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def best_peer(by_transport: dict[str, dict[str, list[float]]], figure: str) -> float:
    best = min if figure.endswith("_us") else max
    return best(statistics.median(by_transport[peer][figure]) for peer in TRANSPORTS if peer != "ipc_buffers")


def table_of(figures: Figures) -> Table:
    table = Table(title="median (lowest to highest repetition)")
    for column in ("measurement", "figure", *TRANSPORTS, "ipc_buffers / best peer"):
        table.add_column(column, justify="left" if column in ("measurement", "figure") else "right")
    for name, by_transport in figures.items():
        for figure in next(iter(by_transport.values())):
            cells = []
            for transport in TRANSPORTS:
                value = summarise(by_transport[transport][figure])
                cells.append(f"{value['median']:,.1f} ({value['low']:,.1f} to {value['high']:,.1f})")
            ratio = statistics.median(by_transport["ipc_buffers"][figure]) / best_peer(by_transport, figure)
            table.add_row(name, figure, *cells, f"{ratio:.2f}")
    return table


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def report(figures: Figures, repetitions: int, sizes: Sizes) -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "pyzmq": zmq.__version__,
        "load_average": round(os.getloadavg()[0], 1),
        "repetitions": repetitions,
        "messages": vars(sizes),
        "figures": {
            name: {
                transport: {figure: summarise(values) for figure, values in by_figure.items()}
                for transport, by_figure in by_transport.items()
            }
            for name, by_transport in figures.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    sizes = Sizes(latencies=2_000 // scale, small=100_000 // scale, large=5_000 // scale)
    console = Console()
    figures = measure(options.repetitions, sizes, console)
    console.print(table_of(figures))
    if options.json is not None:
        options.json.write_text(json.dumps(report(figures, options.repetitions, sizes), indent=1) + "\n")


if __name__ == "__main__":
    main()
