"""Figures of papers at their scale, simulated: our schedulers over the papers' stage costs.

    python bench/papers/simulate.py --list
    python bench/papers/simulate.py hydrainfer-14      # writes bench/results/papers/simulated/
    python bench/papers/simulate.py all

Needs no server and no model. Costs are those of profiles/*.toml.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from simulated import FIGURES
from simulated.figure import Figure, claims_table, save

RESULTS = Path(__file__).parents[1] / "results" / "papers" / "simulated"


def made(names: list[str], figures: Mapping[str, Callable[[], Figure]]) -> list[str]:
    """Return the figures that are asked for. Raises typer.BadParameter for one that there is not."""
    chosen = list(figures) if names == ["all"] else names
    if unknown := [name for name in chosen if name not in figures]:
        raise typer.BadParameter(f"no figure {', '.join(unknown)}; there are {', '.join(figures)}")
    return chosen


def write_table(folder: Path) -> Path:
    """Write the table of all figures that have been made so far; return its path."""
    paths = sorted(folder.glob("*.json"))
    figures = [msgspec.json.decode(path.read_bytes(), type=Figure) for path in paths]
    notes = "\n\n".join(f"**{figure.paper}** ({figure.shows}). {figure.note}" for figure in figures)
    page = folder / "README.md"
    page.write_text(f"# Simulated figures beside the papers'\n\n{claims_table(figures)}\n\n{notes}\n")
    return page


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Figures, or `all`")] = None,
    show: Annotated[bool, typer.Option("--list", help="Tell which figures there are")] = False,
    out: Annotated[Path, typer.Option(help="Gets a picture and a JSON file of each, and a table of all")] = RESULTS,
) -> None:
    """Simulate figures, draw them, and compare them with the papers' numbers."""
    console = Console(stderr=True)
    if show or not names:
        console.print(", ".join(FIGURES), highlight=False)
        return
    for name in made(names, FIGURES):
        start = time.perf_counter()
        figure = FIGURES[name]()
        save(figure, out)
        table = Table("what", "simulated", "paper", title=f"{figure.paper}, {time.perf_counter() - start:.0f} s")
        for claim in figure.claims:
            table.add_row(
                claim.what, *(f"{v:.3g}" if isinstance(v, float) else v for v in (claim.simulated, claim.paper))
            )
        console.print(table)
    console.print(f"written: {write_table(out)}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
