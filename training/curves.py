"""Draw the curves of a training run: losses, and exact answers by category on scenes it was not trained on.

python -m training.curves DIRECTORY
"""

import json
from pathlib import Path
from typing import Annotated

import matplotlib
import typer

matplotlib.use("Agg")
from matplotlib import pyplot as plt

LOSSES = ("seen", "answers", "understood", "pointing", "told")
SHARES = ("cell shape", "cell colour")


def main(
    directory: Annotated[Path, typer.Argument(help="What training wrote")],
    to: Annotated[Path, typer.Option(help="The picture")] = Path("docs/training.svg"),
) -> None:
    """Draw the losses at the left and the shares at the right."""
    lines = [json.loads(line) for line in (directory / "curves.jsonl").read_text().splitlines()]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    for axes, names in ((left, LOSSES), (right, SHARES)):
        for name in names:
            points = [(line["step"], line[name]) for line in lines if name in line]
            axes.plot(*zip(*points, strict=True), label=name)
    right.set_prop_cycle(color=plt.get_cmap("tab20")(range(20)))
    exams = [line for line in lines if line.get("exam")]
    for name in sorted({name for line in exams for name in line["exam"]}):
        points = [(line["step"], line["exam"][name]) for line in exams if name in line["exam"]]
        right.plot(*zip(*points, strict=True), label=name, linewidth=0.8)
    left.set(xlabel="step", ylabel="loss", yscale="log")
    right.set(xlabel="step", ylabel="right", ylim=(0, 1))
    left.legend()
    right.legend(fontsize=6, ncols=2)
    figure.tight_layout()
    figure.savefig(to)


if __name__ == "__main__":
    typer.run(main)
