"""Run `unifiedserve plan`: the best placement for a workload on some hardware, found by simulation."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isinf
from pathlib import Path
from time import monotonic

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from unifiedserve.bench.slo import Slo
from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError
from unifiedserve.planning.case import Case
from unifiedserve.planning.files import check_folder, command, write
from unifiedserve.planning.options import PlanOptions
from unifiedserve.planning.plan import Plan
from unifiedserve.planning.planner import check, make_plan
from unifiedserve.planning.search import Effort, Tried
from unifiedserve.planning.terminal import show
from unifiedserve.planning.workload import read_workload
from unifiedserve.profiles import HardwareProfile, read_profile, stored_profile

_OK, _INCOMPLETE = 0, 1


def run(asked: PlanOptions) -> int:
    """Plan, print it and write it; return the exit code: 1 if nothing meets the targets, or it was interrupted.

    Raises ConfigError for what cannot be planned.
    """
    console = Console(stderr=asked.json)
    _check(asked)
    workload = read_workload(asked.trace, asked.requests, asked.seed, asked.cv, texts_only=asked.texts_only)
    case = Case(_profile(asked), workload, _slo(asked), asked.frames)
    check(case, asked.devices, asked.objective)
    effort = Effort(trials=asked.trials, seconds=asked.seconds, seed=asked.seed)
    processes = asked.processes or len(os.sched_getaffinity(0))
    with _shown(Console(stderr=True), asked.seconds) as tell:
        made = make_plan(
            case, asked.devices, asked.objective, effort, cost=asked.device_cost, processes=processes, tell=tell
        )
    _report(made, asked, console)
    return _OK if made.choices and not made.interrupted else _INCOMPLETE


def _check(asked: PlanOptions) -> None:
    """Raise ConfigError for infinite numbers, and for a folder that cannot be written."""
    for name in ("slo_ttft", "slo_tbt", "slo_ttft_per_video_second", "slo_ttft_per_prompt_token", "device_cost"):
        if isinf(1000 * (getattr(asked, name) or 0.0)):
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(asked, name):g}: must be a finite number")
    if asked.out:
        check_folder(Path(asked.out))


def _report(made: Plan, asked: PlanOptions, console: Console) -> None:
    """Write the files, then show the plan: its reader may be gone, or the folder."""
    written: list[Path] = []
    try:
        written += write(made, Path(asked.out)) if asked.out and made.choices else []
    finally:
        if asked.json:
            print(msgspec.json.format(msgspec.json.encode(made)).decode())
        else:
            show(made, console)
    if not written or asked.json:
        return
    for path in written:
        console.print(f"written: {path}", style="dim", highlight=False, markup=False)
    console.print(command(made.choices[0], asked.model, written[0]), highlight=False, markup=False, soft_wrap=True)


def _slo(asked: PlanOptions) -> Slo:
    if asked.slo_ttft is None and (asked.slo_ttft_per_video_second or asked.slo_ttft_per_prompt_token):
        raise ConfigError(
            "--slo-ttft-per-video-second and --slo-ttft-per-prompt-token add to --slo-ttft: give that, too"
        )
    return Slo(
        ttft=asked.slo_ttft,
        ttft_per_video_second=asked.slo_ttft_per_video_second,
        ttft_per_prompt_token=asked.slo_ttft_per_prompt_token,
        tbt=asked.slo_tbt,
    )


def _profile(asked: PlanOptions) -> HardwareProfile:
    """Return the profile of a file, or the one that was measured here. Raises ConfigError if it is of another model."""
    if asked.profile:
        given = read_profile(Path(asked.profile))
        if asked.model:
            given.check(asked.model, given.hardware)
        return given
    from unifiedserve.profiling.subject import Subject

    subject = Subject.of(EngineConfig.of(model=asked.model))
    profile = stored_profile(subject.digest, subject.hardware)
    if profile is None:
        measure = " ".join(["unifiedserve profile", *([f"--model {asked.model}"] if asked.model else [])])
        raise ConfigError(f"{subject.model} was not measured on this machine: run {measure}, or give --profile FILE")
    return profile


@contextmanager
def _shown(console: Console, seconds: float) -> Iterator[Callable[[Tried], None]]:
    """Show how far a search is: the time that it may take, what was tried, and the best so far."""
    columns = (TextColumn("planning"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task, start = progress.add_task("starting", total=seconds), monotonic()

        def tell(tried: Tried) -> None:
            best = f", best {tried.best.score.value:.3g}/s: {tried.best.candidate.label}" if tried.best else ""
            progress.update(task, completed=monotonic() - start, description=f"{tried.candidates} candidates{best}")

        yield tell
