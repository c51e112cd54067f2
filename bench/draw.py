"""All pictures of bench/results again, from the figures saved beside them; nothing is measured.

python bench/draw.py               # all of them
python bench/draw.py serve-cpu     # those whose path has the word
"""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

BENCH = Path(__file__).parent
RESULTS = BENCH / "results"
sys.path[:0] = [str(BENCH / folder) for folder in ("..", "decode", "serve_cpu", "papers")]  # as their scripts have them

import carriers  # noqa: E402
import language_step  # noqa: E402
import pictures  # noqa: E402
import plan_proof  # noqa: E402
import plan_search  # noqa: E402
import quantization_report  # noqa: E402
import report  # noqa: E402
import scheduler_step  # noqa: E402
import simulated.figure  # noqa: E402
import stall  # noqa: E402
import tuning  # noqa: E402

from bench.campaign.faults import summary  # noqa: E402
from bench.gpu import stall_plot  # noqa: E402
from bench.papers import drawing  # noqa: E402
from bench.soak import drawing as soak_drawing  # noqa: E402
from bench.soak.report import Soak  # noqa: E402

Draw = Callable[[Path], Any]  # takes the file of figures


def beside(draw: Callable[[Path, Any], Any], read: Callable[[Any], Any]) -> Draw:
    """Return what draws into the .png of the figures' name, from what it reads out of them."""
    return lambda saved: draw(saved.with_suffix(".png"), read(json.loads(saved.read_text())))


def quantization(saved: Path) -> None:
    texts, exam = quantization_report.read(json.loads(saved.read_text()))
    quantization_report.draw(saved.with_suffix(".png"), texts, exam)


def serve_cpu(saved: Path) -> None:
    pictures.draw(json.loads(saved.read_text()), saved.parent)


def decode(saved: Path) -> None:
    report.draw(json.loads(saved.read_text()), saved.parent)


def soak(saved: Path) -> None:
    seen = msgspec.json.decode(gzip.decompress(saved.read_bytes()), type=Soak)
    soak_drawing.draw(saved.with_name("soak.png"), seen)


DRAWN: dict[str, Draw] = {
    "campaign/faults-by-stage.json": beside(
        summary.draw, lambda found: msgspec.convert(found["stages"], list[summary.Row])
    ),
    "carriers.json": beside(carriers.draw, lambda found: [carriers.Point(**each) for each in found["points"]]),
    "decode.json": decode,
    "gpu/*/results.json": stall_plot.draw_saved,
    "language-step.json": beside(language_step.draw, lambda found: found["steps"]),
    "papers/*/figures.json": drawing.draw_saved,
    "papers/simulated/*.json": beside(
        simulated.figure.draw, lambda found: msgspec.convert(found, simulated.figure.Figure)
    ),
    **dict.fromkeys(  # with one rate a server there is no goodput to draw
        ("plan-proof.json", "plan-proof-replayed.json"),
        beside(plan_proof.draw, lambda found: msgspec.convert(found, plan_proof.Results)),
    ),
    "plan-search.json": beside(plan_search.draw, lambda found: found["courses"]),
    "quantization.json": quantization,
    "scheduler-step.json": beside(
        scheduler_step.draw, lambda found: [scheduler_step.Point(**each) for each in found["points"]]
    ),
    "serve-cpu/*/serve-cpu.json": serve_cpu,
    "soak/soak-seen.json.gz": soak,
    "stall.json": beside(stall.draw, lambda found: [stall.Run(**each) for each in found["runs"]]),
    "tuning.json": beside(tuning.draw, lambda found: msgspec.convert(found["points"], list[tuning.Point])),
}


def main(
    word: Annotated[str, typer.Argument(help="Only figures whose path has it")] = "",
    folder: Annotated[Path, typer.Option(help="Where the figures are")] = RESULTS,
) -> None:
    """Draw pictures again."""
    for pattern, draw in DRAWN.items():
        for saved in sorted(folder.glob(pattern)):
            if word in saved.relative_to(folder).as_posix():
                draw(saved)
                print(saved.relative_to(folder))


if __name__ == "__main__":
    typer.run(main)
