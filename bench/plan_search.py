"""Optuna's sampler beside random search, with which EPD chose: the best goodput over the simulations that it took.

python bench/plan_search.py profiles/a100-qwen2.5-vl-7b.toml --devices 4
"""

import json
import sys
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console

from unifiedserve.bench.slo import Slo
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.planning.case import Case
from unifiedserve.planning.pool import Pool
from unifiedserve.planning.search import Effort, Sampler, Search, Tried
from unifiedserve.planning.workload import read_workload
from unifiedserve.profiles import read_profile

Course = list[tuple[int, float]]  # simulations so far, and the best goodput


def course(case: Case, devices: int, effort: Effort, processes: int) -> Course:
    """Return how a search goes."""
    found: Course = []

    def tell(tried: Tried) -> None:
        best = tried.best.score.value if tried.best else 0.0
        if not found or found[-1][1] != best:
            found.append((tried.simulations, best))

    search = Search(case, effort, "goodput", 0.0, tell)
    with Pool(case, processes) as pool:
        search.run(devices, pool)
    return [*found, (search.tried.simulations, search.ranking.best[0].score.value if search.ranking.best else 0.0)]


def draw(path: Path, courses: dict[str, list[Course]]) -> None:
    """Draw a line for each seed, in the sampler's colour."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axis = figure.subplots()
    for colour, (sampler, some) in zip(("#0072B2", "#E69F00"), courses.items(), strict=True):
        for number, each in enumerate(some):
            label = sampler if not number else None
            axis.step(*zip(*each, strict=True), where="post", color=colour, label=label, linewidth=1.2)
    axis.set_xlabel("simulations")
    axis.set_ylabel("best goodput, requests a second")
    axis.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main(
    profile: Annotated[Path, typer.Argument(help="A profile")],
    devices: Annotated[int, typer.Option(help="GPUs")] = 4,
    trace: Annotated[str, typer.Option(help="As of unifiedserve plan")] = "image",
    requests: Annotated[int, typer.Option(help="Of the trace")] = 100,
    ttft: Annotated[float, typer.Option(help="Target, seconds")] = 2.0,
    tbt: Annotated[float, typer.Option(help="Target, seconds")] = 0.1,
    trials: Annotated[int, typer.Option(help="Candidates of each search")] = 80,
    seeds: Annotated[int, typer.Option(help="Searches of each sampler")] = 3,
    processes: Annotated[int, typer.Option(help="That simulate")] = 2,
    out: Annotated[Path, typer.Option(help="Where everything is saved")] = Path("bench/results/plan-search.json"),
) -> None:
    """Search with both samplers."""
    console = Console()
    case = Case(read_profile(profile), read_workload(trace, requests, 0), Slo(ttft=ttft, tbt=tbt))
    courses: dict[str, list[Course]] = {}
    for sampler in get_args(Sampler):
        for seed in range(seeds):
            found = course(case, devices, Effort(trials=trials, seed=seed, sampler=sampler), processes)
            courses.setdefault(sampler, []).append(found)
            console.print(f"{sampler}, seed {seed}: {found[-1][1]:.3g}/s after {found[-1][0]} simulations")
    command = " ".join(["python", *sys.argv])
    out.write_text(json.dumps({"command": command, "machine": describe_machine(), "courses": courses}) + "\n")
    draw(out.with_suffix(".png"), courses)


if __name__ == "__main__":
    typer.run(main)
