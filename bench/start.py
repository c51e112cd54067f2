"""Time a server's start: from the command to its first answer, with weights that an earlier start has kept.

Each round starts the server of every installation in turn, so that all meet the machine as it is. Ready is when /health
answers 200; the processor's time is that of all processes by then. The first start of each is not counted: it keeps
the weights, in a cache folder of its own.

    python bench/start.py CHECKPOINT --against OTHER/.venv/bin/python --rounds 7 --json bench/results/start.json
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
from typing import Annotated

import httpx
import psutil
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from unifiedserve.doctor.machine import describe_machine

LOOK_SECONDS = 0.01
LONGEST_START = 300.0  # seconds
WITH_WEIGHTS = 64 << 20  # bytes of a checkpoint, from which weights are kept
FIGURES = ("ready, s", "first token, s", "processor, s")

Figures = Mapping[str, float]


@contextmanager
def started(python: str, model: str, cache: Path, options: list[str]) -> Iterator[tuple[httpx.Client, psutil.Process]]:
    """Start a server, and yield a client and the process when it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        python,
        "-P",
        "-m",
        "unifiedserve.cli",
        "serve",
        *([model] if model else []),
        "--port",
        str(port),
        *options,
    ]
    process = subprocess.Popen(
        command, env=os.environ | {"XDG_CACHE_HOME": str(cache)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            await_ready(process, client)
            yield client, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.communicate()


def await_ready(process: "subprocess.Popen[bytes]", client: httpx.Client) -> None:
    end = time.monotonic() + LONGEST_START
    while time.monotonic() < end:
        try:
            if client.get("/health").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        if process.poll() is not None:
            assert process.stderr is not None
            sys.exit(f"the server ended with code {process.returncode}: {process.stderr.read().decode()[-2000:]}")
        time.sleep(LOOK_SECONDS)
    sys.exit(f"the server is not ready after {LONGEST_START:.0f} s")


def keep_weights(python: str, model: str, cache: Path, options: list[str]) -> None:
    """Start a server once, and stop it when it has kept the weights, if it keeps any."""
    size = sum(file.stat().st_size for file in Path(model).glob("*.safetensors")) if model else 0
    with started(python, model, cache, options):
        end = time.monotonic() + LONGEST_START
        while size >= WITH_WEIGHTS and not list(cache.rglob("*.safetensors")) and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)


def measure(python: str, model: str, cache: Path, options: list[str]) -> Figures:
    begin = time.monotonic()
    with started(python, model, cache, options) as (client, process):
        ready = time.monotonic() - begin
        family = [process, *process.children(recursive=True)]
        processor = sum(sum(each.cpu_times()[:2]) for each in family)
        name = client.get("/v1/models").json()["data"][0]["id"]
        asked = {"model": name, "prompt": "Once upon a time", "max_tokens": 1}
        client.post("/v1/completions", json=asked).raise_for_status()
        return dict(zip(FIGURES, (ready, time.monotonic() - begin, processor), strict=True))


def show(console: Console, rounds: list[dict[str, Figures]]) -> None:
    table = Table(title="medians (least to most) of the rounds")
    for column in ("installation", *FIGURES):
        table.add_column(column, justify="right")
    for name in rounds[0]:
        runs = {figure: [each[name][figure] for each in rounds] for figure in FIGURES}
        cells = [f"{statistics.median(own):.2f} ({min(own):.2f} to {max(own):.2f})" for own in runs.values()]
        table.add_row(name, *cells)
    for other in list(rounds[0])[1:]:
        ratios = [
            statistics.median(each["ours"][figure] / each[other][figure] for each in rounds) for figure in FIGURES
        ]
        table.add_row(f"ours / {other}", *(f"{ratio:.2f}" for ratio in ratios))
    console.print(table)


def main(
    model: Annotated[str, typer.Argument(help="A checkpoint's folder. Empty: the bundled model")] = "",
    against: Annotated[str, typer.Option(help="Python of another installation to compare with")] = "",
    rounds: Annotated[int, typer.Option(help="How often each is started")] = 7,
    quantization: Annotated[str, typer.Option(help="As for serve")] = "none",
    results: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file")] = None,
) -> None:
    """Time a server's start beside that of another installation."""
    console = Console()
    installations = {"ours": sys.executable} | ({"other": against} if against else {})
    options = ["--quantization", quantization]
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: Path(folder) / name for name in installations}
        for name, python in installations.items():
            keep_weights(python, model, caches[name], options)
        found = [
            {name: measure(python, model, caches[name], options) for name, python in installations.items()}
            for _ in track(range(rounds), "rounds", console=console)
        ]
    show(console, found)
    if results:
        named = {"model": Path(model).name or "bundled", "quantization": quantization, "machine": describe_machine()}
        results.write_text(json.dumps({**named, "rounds": found}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
