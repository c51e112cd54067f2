"""Figures of papers, on this machine: an experiment for each of them, listed in README.md beside this file.

python bench/papers/reproduce.py --list
python bench/papers/reproduce.py goodput-mixed
"""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import drawing
import experiment
import sweep
import typer
from rich.console import Console
from rich.table import Table

from unifiedserve.bench.arrivals.parse import parse
from unifiedserve.bench.arrivals.traces.trace import Trace
from unifiedserve.bench.metrics.summary import Yardstick
from unifiedserve.bench.report.write import write_report
from unifiedserve.bench.workloads.build import Workload, build
from unifiedserve.bench.workloads.media.folder import make
from unifiedserve.bench.workloads.replay import replay
from unifiedserve.bench.workloads.text import Tokenizer, Writer
from unifiedserve.errors import ConfigError
from unifiedserve.models.tiny import make_checkpoint

sys.path.append(str(experiment.FOLDER.parent / "serve_cpu"))

import checkpoint  # type: ignore[import-not-found]
import contestants  # type: ignore[import-not-found]
import install_vllm  # type: ignore[import-not-found]
import servers  # type: ignore[import-not-found]

RESULTS = experiment.FOLDER.parent / "results" / "papers"
CACHE = checkpoint.DEFAULT_FOLDER.parent
LONGEST_TEXT = 8000  # tokens of a text of a trace
QUICK_REQUESTS = 6
QUICK_FRAMES = 8
QUICK_RATES = (2.0, 4.0)


def listed(console: Console) -> None:
    table = Table("experiment", "shows", "figures")
    for name in experiment.names():
        found = experiment.read(name)
        table.add_row(name, found.shows, ", ".join(found.papers))
    console.print(table)


def drawn(
    chosen: experiment.Experiment,
    count: int,
    seed: int,
    model: Path,
    media: Path,
    trace: Path | None,
    kinds: list[str],
    quick: bool,
) -> Workload:
    """Return the requests. Raises ConfigError if the experiment needs a trace and there is none."""
    writer = Writer(Tokenizer(model / "tokenizer.json"), seed)
    if chosen.workload == experiment.TRACE:
        if trace is None:
            raise ConfigError("this experiment replays a trace: name its file with --trace")
        process = parse(f"trace:{trace}?first={count}")
        assert isinstance(process, Trace)
        return replay(process, seed, writer, media, LONGEST_TEXT)
    mix = experiment.mix_of(chosen, kinds)
    return build(experiment.shrunk(mix) if quick else mix, count, seed, writer, media)


def main(
    name: Annotated[str, typer.Argument(help="The experiment")] = "",
    show: Annotated[bool, typer.Option("--list", help="Tell which experiments there are")] = False,
    only: Annotated[
        str, typer.Option("--servers", help="Others than the experiment's, as of bench/serve_cpu/run.py")
    ] = "",
    rates: Annotated[str, typer.Option(help="Others than the experiment's, requests a second: 0.1,0.2")] = "",
    requests: Annotated[int, typer.Option(min=0, help="In each run; 0: the experiment's")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="How often each server runs, in turn")] = 1,
    kind: Annotated[list[str] | None, typer.Option(help="Only requests of this kind; may be given again")] = None,
    trace: Annotated[Path | None, typer.Option(help="The file that the experiment `trace` replays")] = None,
    frames: Annotated[int, typer.Option(help="Frames of a video")] = 64,
    frame_pixels: Annotated[int, typer.Option(help="Of a frame, at most; images keep their size")] = 50_176,
    seed: Annotated[int, typer.Option(help="Of requests and arrivals")] = 0,
    model: Annotated[
        Path, typer.Option(help="The checkpoint; half a billion random weights if missing")
    ] = checkpoint.DEFAULT_FOLDER,
    vllm: Annotated[Path, typer.Option(help="Folder that install_vllm.py filled")] = install_vllm.DEFAULT_FOLDER,
    media: Annotated[Path, typer.Option(help="Keeps videos and images, made if missing")] = CACHE / "papers",
    out: Annotated[Path, typer.Option(help="A folder in it gets the report and the pictures")] = RESULTS,
    quick: Annotated[bool, typer.Option(help="Tiny model, short videos, few requests: to see that it runs")] = False,
) -> None:
    """Run an experiment, and report on it."""
    console = Console(stderr=True)
    if show or not name:
        listed(console)
        return
    try:
        chosen = experiment.read(name)
        compared = [contestants.read(text) for text in (only.split(",") if only else chosen.servers)]
        usual = QUICK_RATES if quick else chosen.rates
        speeds = [float(rate) for rate in rates.split(",")] if rates else usual
        arrivals = [chosen.arrivals_at(rate, trace) for rate in speeds]
        for each in arrivals:
            parse(each)  # what is wrong is said before anything is made
        model = prepared(model, quick)
        count = QUICK_REQUESTS if quick else requests or chosen.requests
        workload = drawn(chosen, count, seed, model, media, trace, kind or [], quick)
        make(workload.media, media, console)
        plan = sweep.Sweep(
            name=name,
            requests=workload.requests,
            arrivals=list(dict.fromkeys(arrivals)),
            seed=seed,
            frames=QUICK_FRAMES if quick else frames,
            frame_pixels=frame_pixels,
        )
        machine = sweep.Machine(model, media, vllm, Path(tempfile.mkdtemp(prefix=f"{name}-")))
        results = sweep.Results()
        with servers.ended_by_signals(), stopped_by_keyboard(console):
            sweep.run(machine, plan, compared, rounds, results, console)
        written = report(chosen, results, out / name)
    except (ConfigError, ValueError) as error:
        console.print(str(error), style="red", highlight=False)
        raise typer.Exit(2) from error
    console.print(f"written: {', '.join(map(str, written))}; logs: {machine.logs}", highlight=False)


@contextlib.contextmanager
def stopped_by_keyboard(console: Console) -> Iterator[None]:
    """Let Ctrl-C end the runs, but not what is made of them."""
    try:
        yield
    except KeyboardInterrupt:
        console.print("stopped: the report is of what there is")


def prepared(model: Path, quick: bool) -> Path:
    """Return the checkpoint, made if it is missing."""
    if quick:
        model = model.with_name("tiny")
    if not (model / "config.json").exists():
        (make_checkpoint if quick else checkpoint.make)(model)
    return model


def report(chosen: experiment.Experiment, results: sweep.Results, folder: Path) -> list[Path]:
    """Write the page, the figures and the pictures that make sense of these runs, and return their paths."""
    yardstick = Yardstick(slo=sweep.targets(chosen, results.isolated), isolated=results.isolated)
    for old in folder.glob("run-*.json"):
        old.unlink()
    paths = write_report(results.runs, yardstick, folder)[:2]
    return [*paths, *drawing.draw_saved(folder / "figures.json")]


if __name__ == "__main__":
    typer.run(main)
