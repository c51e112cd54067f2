"""Write the files of a report."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from unifiedserve.bench.metrics.summary import Yardstick, summarise, summarise_kinds
from unifiedserve.bench.records import Run
from unifiedserve.bench.report.files import replace_file, save_run
from unifiedserve.bench.report.page import make_page
from unifiedserve.errors import ConfigError
from unifiedserve.profiles import is_writable


def check_place(folder: Path) -> None:
    """Raise ConfigError if `write_report` could not write there."""
    if not is_writable(folder):
        raise ConfigError(f"{folder}: no report can be written here: give another folder with --out")
    if find_spec("matplotlib") is None:
        raise ConfigError("--out needs matplotlib, which draws the report: pip install 'unifiedserve[bench]'")


def write_report(runs: Sequence[Run], yardstick: Yardstick, folder: Path) -> list[Path]:
    """Write each run as run-N.json, figures.json (without records) and report.html; return their paths.

    The runs go first: all else can be made of them again. Raises ConfigError if there is no run, the yardstick's ramps
    leave nothing, or the folder cannot be written to.
    """
    if not runs:
        raise ConfigError("there is no run to report on: name at least one")
    page, figures = folder / "report.html", folder / "figures.json"
    paths = [folder / f"run-{number}.json" for number in range(1, len(runs) + 1)]
    for run, path in zip(runs, paths, strict=True):
        save_run(run, path)
    replace_file(figures, msgspec.json.format(msgspec.json.encode([_figures(run, yardstick) for run in runs])))
    replace_file(page, make_page(runs, yardstick).encode())
    return [page, figures, *paths]


def _figures(run: Run, yardstick: Yardstick) -> dict[str, Any]:
    """Return a run's figures and circumstances."""
    circumstances = {name: value for name, value in msgspec.structs.asdict(run).items() if name != "records"}
    return circumstances | {
        "slo": yardstick.slo,
        "all": summarise(run.records, yardstick),
        "kinds": summarise_kinds(run.records, yardstick),
    }
