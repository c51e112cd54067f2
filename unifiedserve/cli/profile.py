"""Run `unifiedserve profile`: what this machine does with a model, measured, shown and kept."""

from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from unifiedserve.cli.measured_servers import Measurement, measured
from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError
from unifiedserve.profiles import HardwareProfile, check_file, check_store, keep_profile, write_profile
from unifiedserve.profiling.effort import FULL, QUICK
from unifiedserve.profiling.load import OtherLoad, share_now
from unifiedserve.profiling.media import IMAGE, VIDEO, Media
from unifiedserve.profiling.subject import Subject

_TOO_BUSY, _BUSY = 0.25, 0.1  # of the cores' time, by other programs
_UNSTEADY = 0.25  # spread from which on a measurement is worth a remark


class Wishes(NamedTuple):
    """Hold a user's wishes for a measurement. The media are the package's own unless they are given."""

    image: Path | None = None
    video: Path | None = None
    out: Path | None = None
    quick: bool = False
    despite_load: bool = False


def run(config: EngineConfig, wishes: Wishes, console: Console) -> None:
    """Measure, show the profile and keep it.

    Raises ConfigError if the machine is too busy, the profile could not be kept, or a server does not start.
    """
    config.check()
    media = Media.of(wishes.image or IMAGE, wishes.video or VIDEO)
    if wishes.out is None:
        check_store()
    else:
        check_file(wishes.out)
    if (share := share_now()) > _TOO_BUSY and not wishes.despite_load:
        raise ConfigError(f"other programs take {share:.0%} of the cores: end them first, or give --despite-load")
    subject, load = Subject.of(config), OtherLoad()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting")
        measurement = Measurement(config, subject, media, QUICK if wishes.quick else FULL)
        profile = measured(measurement, lambda what: progress.update(task, description=what))
    told: list[tuple[str, str]] = []
    others = load.share()
    try:
        told = _kept(profile, wishes.out)
    finally:  # nothing of minutes is lost, where the reader of the output is gone or a disk is full
        _show(console, profile)
        _warn(console, profile, others)
    for words, style in told:
        console.print(words, style=style, highlight=False, markup=False, soft_wrap=True)


def _kept(profile: HardwareProfile, out: Path | None) -> list[tuple[str, str]]:
    """Keep the profile, and return lines that say so, each with its style."""
    try:
        told = [(f"kept for plan in {keep_profile(profile)}", "")]
    except ConfigError as error:
        told = [(f"not kept for plan: {error}", "yellow")]
    if out is not None:
        write_profile(out, profile)
        told.append((f"written to {out}", ""))
    return told


def _warn(console: Console, profile: HardwareProfile, share: float) -> None:
    if share > _BUSY:
        console.print(f"[yellow]other programs took {share:.0%} of the cores meanwhile: measure again without them[/]")
    if unsteady := [f"{name} {spread:.0%}" for name, spread in profile.spread.items() if spread > _UNSTEADY]:
        console.print(f"[yellow]measurements lie far apart: {', '.join(unsteady)}[/]")


def _show(console: Console, profile: HardwareProfile) -> None:
    table = Table("work", "ms", title=f"{profile.model} on {profile.hardware}")
    costs = msgspec.structs.asdict(profile.costs)
    plain = ("half", "waste", "encoder_layers")
    table.caption = ", ".join(f"{name} {costs[name]:.3g}" for name in plain)
    for name, seconds in costs.items():
        if name not in plain:
            table.add_row(name, f"{seconds * 1e3:.5g}")
    console.print(table)
    console.print(_matrix(profile))
    spreads = ", ".join(f"{name} {spread:.0%}" for name, spread in profile.spread.items())
    console.print(f"middle half of the measurements, over their median: {spreads}", highlight=False)


def _matrix(profile: HardwareProfile) -> Table:
    """Draw how many times longer a row's stage takes beside a column's.

    It is shown alone on half of the device, too.
    """
    stages = list(profile.interference)
    table = Table("times longer", *(f"beside {other}" for other in stages), "on half of it")
    for stage in stages:
        row = ["" if other is stage else f"{profile.factor(stage, other):.2f}" for other in stages]
        half = profile.half_device.get(stage)
        table.add_row(stage, *row, f"{half:.2f}" if half else "")
    return table
