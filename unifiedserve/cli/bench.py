"""Run `unifiedserve bench`, which measures any OpenAI-compatible server.

Nothing heavy is imported before it is needed.
"""

import asyncio
from collections.abc import Callable
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from typer.core import TyperGroup

from unifiedserve.bench.options import GoodputOptions, RunOptions, SloOptions
from unifiedserve.cli.options import from_options, signature_of
from unifiedserve.errors import ConfigError

if TYPE_CHECKING:
    from unifiedserve.bench.goodput.search import Found
    from unifiedserve.bench.metrics.summary import Yardstick
    from unifiedserve.bench.records import Run

_INTERRUPTED = 1


class _RunUnlessNamed(TyperGroup):
    """Take options without a command for those of `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)


bench = typer.Typer(
    name="bench",
    cls=_RunUnlessNamed,
    help="Measure an OpenAI-compatible server: speed, stalls, accuracy.",
    epilog="Without a command, options go to run: unifiedserve bench --arrivals poisson:2",
    no_args_is_help=True,
)


def run(**options: Any) -> None:
    """Send requests at their times and report how the server answered.

    \b
    Send texts, images and videos, two requests a second, to the server at http://127.0.0.1:8000:
      unifiedserve bench --workload mixed --arrivals poisson:2 --requests 200 --out results
    Measure another server against targets for the first token (longer for long videos) and between tokens:
      unifiedserve bench --url http://gpu:8000 --slo-ttft 1 --slo-ttft-per-video-second 0.05 --slo-tbt 0.1
    Ask the questions of a data set one after another, and score the answers:
      unifiedserve bench --dataset mlvu --data-dir ~/MLVU --arrivals closed:1 --frames 64
    Replay a production trace at a quarter of its rate:
      unifiedserve bench --workload trace --arrivals 'trace:azure.csv?scale=4&first=500'
    """
    asked = from_options(RunOptions, options)
    from unifiedserve.bench.assembly import check, parts, stamp, yardstick
    from unifiedserve.bench.benchmark import run_once
    from unifiedserve.bench.report.terminal import print_summary

    check(asked)
    _check_place(asked.out)
    console = Console(highlight=False)
    measured = yardstick(asked)
    found = asyncio.run(run_once(asked, parts(measured.slo, console), console))
    if found is None:
        return
    stamp(found)
    _report(lambda: print_summary(found, measured, console), console, lambda: _write([found], measured, asked.out))
    raise typer.Exit(_INTERRUPTED if found.interrupted else 0)


def goodput(**options: Any) -> None:
    """Find the highest rate at which requests meet their targets.

    Nine of ten have to (see --goal). The search doubles or halves the rate until the result lies between two rates,
    then bisects.

    \b
    unifiedserve bench goodput --slo-ttft 1 --slo-ttft-per-video-second 0.05 --slo-tbt 0.1 --requests 100
    unifiedserve bench goodput --arrivals gamma:RATE,cv=4 --isolated alone/run-1.json --slo-factor 5 --repeats 3
    """
    asked = from_options(GoodputOptions, options)
    from unifiedserve.bench.assembly import check, parts, stamp, yardstick
    from unifiedserve.bench.benchmark import find_goodput
    from unifiedserve.bench.goodput.outcome import describe
    from unifiedserve.bench.metrics.attainment import needed_scale

    check(asked)
    _check_place(asked.out)
    console = Console(highlight=False)
    measured = yardstick(asked)
    if measured.slo.asks_nothing:
        raise ConfigError("goodput needs targets: give --slo-ttft, --slo-tbt or --slo-factor")
    found, runs = asyncio.run(find_goodput(asked, parts(measured.slo, console), console))
    for each in runs:
        stamp(each)

    def show() -> None:
        for each in runs:
            _tell(each, console)
        scales = [needed_scale(record, measured.slo) for record in runs[0].records]
        console.print(describe(found, scales))

    _report(show, console, lambda: [*_write(runs, measured, asked.out), *_write_goodput(found, asked.out)])
    raise typer.Exit(_INTERRUPTED if found.interrupted else 0)


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Files of runs (run-1.json) that `bench --out` has written", show_default=False)
    ],
    **options: Any,
) -> None:
    """Show runs side by side, each compared with the first.

    Runs of one name with the same arrivals are rounds, and put together: bench --name tells others apart.

    \b
    unifiedserve bench compare ours/run-1.json vllm/run-1.json --slo-ttft 1 --out both
    """
    asked = from_options(SloOptions, options)
    from unifiedserve.bench.assembly import yardstick
    from unifiedserve.bench.report.files import load_run
    from unifiedserve.bench.report.terminal import print_comparison

    _check_place(asked.out)
    console = Console(highlight=False)
    measured = yardstick(asked)
    loaded = [load_run(path) for path in runs]
    _report(lambda: print_comparison(loaded, measured, console), console, lambda: _write(loaded, measured, asked.out))


def _tell(run: "Run", console: Console) -> None:
    """Say what speaks against a run's figures."""
    for caution in run.cautions:
        console.print(f"caution: {run.arrivals}: {caution}", style="yellow", markup=False)


def _check_place(folder: str) -> None:
    """Raise ConfigError before anything is measured if its report could not be written."""
    if folder:
        from unifiedserve.bench.report.write import check_place

        check_place(Path(folder))


def _report(show: Callable[[], None], console: Console, write: Callable[[], list[Path]]) -> None:
    """Write files, show figures, and tell what was written.

    Nothing is lost where the reader of the output has gone, and figures are shown though they cannot be written.
    """
    try:
        written = write()
    finally:
        show()
    for path in written:
        console.print(f"written: {path}", style="dim", markup=False)


def _write(runs: "list[Run]", measured: "Yardstick", folder: str) -> list[Path]:
    """Write the report of runs if there is a folder for it; return the paths."""
    if not folder:
        return []
    from unifiedserve.bench.report.write import write_report

    return write_report(runs, measured, Path(folder))


def _write_goodput(found: "Found", folder: str) -> list[Path]:
    """Write what a search has found, likewise."""
    if not folder:
        return []
    from unifiedserve.bench.report.files import replace_file

    path = Path(folder) / "goodput.json"
    replace_file(path, msgspec.json.format(msgspec.json.encode(found)))
    return [path]


def _slo_last(struct: type[SloOptions]) -> Signature:
    """Return the options of `struct`, those of its base after its own."""
    options = list(signature_of(struct).parameters.values())
    of_base = len(SloOptions.__struct_fields__)
    return Signature([*options[of_base:], *options[:of_base]])


run.__signature__ = _slo_last(RunOptions)  # type: ignore[attr-defined]
goodput.__signature__ = _slo_last(GoodputOptions)  # type: ignore[attr-defined]
_of_compare = signature(compare).parameters["runs"], *signature_of(SloOptions).parameters.values()
compare.__signature__ = Signature(_of_compare)  # type: ignore[attr-defined]
for command in (run, goodput, compare):
    bench.command()(command)
