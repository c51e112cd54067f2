"""Time a server's start: from the command to its first answer, with weights that an earlier start has kept.

Each round starts all servers in turn, so that they meet the machine as it is: ours, that of another installation, and
llama.cpp's (with the same weights, in a GGUF file). Ready is when /health answers 200; the processor's time is that of
all processes by then. The first start of each is not counted: ours keeps the weights, in a cache folder of its own.

    python bench/start.py CHECKPOINT --against OTHER/.venv/bin/python --gguf MODEL.gguf --json bench/results/start.json
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import httpx
import psutil
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from serve_cpu import install_llamacpp

from unifiedserve.doctor.machine import describe_machine

LOOK_SECONDS = 0.01
LONGEST_START = 300.0  # seconds
LONGEST_KEEPING = 60.0  # seconds
FIGURES = ("ready, s", "first token, s", "processor, s")

Figures = Mapping[str, float]


class Server(NamedTuple):
    """Describe a server by its command without a port, and by where it keeps weights, if it does."""

    command: list[str]
    cache: Path | None = None

    @contextmanager
    def running(self) -> Iterator[tuple[httpx.Client, psutil.Process]]:
        """Start it, and yield a client and the process when it is ready."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        environment = os.environ | ({"XDG_CACHE_HOME": str(self.cache)} if self.cache else {})
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [*self.command, "--port", str(port)], env=environment, stdout=subprocess.DEVNULL, stderr=log
            )
            try:
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                    await_ready(process, client)
                    yield client, psutil.Process(process.pid)
            except ConnectionError:
                log.seek(0)
                sys.exit(f"{self.command[0]} ended: {log.read().decode(errors='replace')[-2000:]}")
            finally:
                process.terminate()
                process.wait()

    def keep_weights(self) -> None:
        """Start it once, and stop it when it has kept weights. Those that are small it may not keep."""
        with self.running():
            end = time.monotonic() + LONGEST_KEEPING
            while self.cache and time.monotonic() < end and not list(self.cache.rglob("*.safetensors")):
                time.sleep(LOOK_SECONDS)

    def measure(self) -> Figures:
        begin = time.monotonic()
        with self.running() as (client, process):
            ready = time.monotonic() - begin
            family = [process, *process.children(recursive=True)]
            processor = sum(sum(each.cpu_times()[:2]) for each in family)
            name = client.get("/v1/models").json()["data"][0]["id"]
            asked = {"model": name, "prompt": "Once upon a time", "max_tokens": 1}
            client.post("/v1/completions", json=asked).raise_for_status()
            return dict(zip(FIGURES, (ready, time.monotonic() - begin, processor), strict=True))


def await_ready(process: "subprocess.Popen[bytes]", client: httpx.Client) -> None:
    """Return when it is ready. Raises ConnectionError if it ends before, or takes too long."""
    end = time.monotonic() + LONGEST_START
    while time.monotonic() < end and process.poll() is None:
        try:
            if client.get("/health").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(LOOK_SECONDS)
    raise ConnectionError


def show(console: Console, rounds: list[dict[str, Figures]]) -> None:
    table = Table(title="medians (least to most) of the rounds")
    for column in ("server", *FIGURES):
        table.add_column(column, justify="right")
    for name in rounds[0]:
        runs = [[each[name][figure] for each in rounds] for figure in FIGURES]
        table.add_row(name, *(f"{statistics.median(own):.2f} ({min(own):.2f} to {max(own):.2f})" for own in runs))
    for other in list(rounds[0])[1:]:
        ratios = [
            statistics.median(each["ours"][figure] / each[other][figure] for each in rounds) for figure in FIGURES
        ]
        table.add_row(f"ours / {other}", *(f"{ratio:.2f}" for ratio in ratios))
    console.print(table)


def main(
    model: Annotated[str, typer.Argument(help="A checkpoint's folder. Empty: the bundled model")] = "",
    against: Annotated[str, typer.Option(help="Python of another installation to compare with")] = "",
    gguf: Annotated[str, typer.Option(help="The same weights in a file for llama.cpp's server")] = "",
    llamacpp: Annotated[Path, typer.Option(help="Where llama.cpp is")] = install_llamacpp.DEFAULT_FOLDER,
    rounds: Annotated[int, typer.Option(help="How often each is started")] = 7,
    results: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file")] = None,
) -> None:
    """Time a server's start beside that of other servers."""
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        pythons = {"ours": sys.executable} | ({"other": against} if against else {})
        servers = {
            name: Server([python, "-P", "-m", "unifiedserve.cli", "serve", *filter(None, [model])], Path(folder) / name)
            for name, python in pythons.items()
        }
        if gguf:
            servers["llama.cpp"] = Server([str(install_llamacpp.program(llamacpp, "llama-server")), "--model", gguf])
        for server in servers.values():
            server.keep_weights()
        found = [
            {name: server.measure() for name, server in servers.items()}
            for _ in track(range(rounds), "rounds", console=console)
        ]
    show(console, found)
    if results:
        named = {"model": Path(model).name or "bundled", "machine": describe_machine()}
        results.write_text(json.dumps({**named, "rounds": found}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
