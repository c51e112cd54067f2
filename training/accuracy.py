"""The bundled model's share of right answers, over HTTP, about encoded files of scenes that it was never trained on.

python -m training.accuracy --scenes 200
"""

import json
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from training.examination import Paper, examine, is_right, papers, row_of
from training.world.questions import Turn
from unifiedserve.cli.daemon import daemon
from unifiedserve.doctor.machine import describe_machine

TARGETS = {
    "colour": 0.95,
    "shape": 0.95,
    "count up to three": 0.95,
    "direction": 0.95,
    "order": 0.90,
    "quadrant": 0.90,
    "time": 0.85,
    "time, minutes long": 0.85,
}


@dataclass
class Marks:
    """Right and wrong by the row of the table, and the wrong answers."""

    rows: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[dict[str, str]] = field(default_factory=list)

    def add(self, paper: Paper, turn: Turn, answer: str) -> None:
        """Mark one answer."""
        right = is_right(paper.scene, turn, answer)
        self.rows[row_of(paper.scene, turn)].append(right)
        if not right:
            self.wrong.append({"question": turn.question, "right": turn.answer, "answer": answer})

    def counts(self) -> dict[str, int]:
        """Return the number of questions of each row."""
        return {row: len(marks) for row, marks in sorted(self.rows.items())}

    def shares(self) -> dict[str, float]:
        """Return the share of right answers of each row."""
        return {row: sum(marks) / len(marks) for row, marks in sorted(self.rows.items())}


def mark(model: Path | None, scenes: int) -> Marks:
    """Start a daemon for the model, ask it about `scenes` new files and mark its answers."""
    marks = Marks()
    with (
        tempfile.TemporaryDirectory() as folder,
        daemon(model or "", "--allowed-local-media-path", folder) as started,
    ):
        for paper, turn, answer in examine(started.url, papers(scenes, Path(folder))):
            marks.add(paper, turn, answer)
    return marks


def show(marks: Marks) -> None:
    """Print a table of the shares beside the targets."""
    table, counts = Table("category", "questions", "right", "target"), marks.counts()
    for row, share in marks.shares().items():
        target = f"{TARGETS[row]:.0%}" if row in TARGETS else ""
        table.add_row(row, str(counts[row]), f"{share:.1%}", target)
    Console().print(table)


def main(
    model: Annotated[Path | None, typer.Option(help="Checkpoint; default: the bundled one")] = None,
    scenes: Annotated[int, typer.Option(help="Files, each with a dozen questions")] = 200,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where the shares and wrong answers go")] = None,
) -> None:
    """Show the shares of right answers by category, beside what they should be."""
    marks = mark(model, scenes)
    show(marks)
    if json_file:
        values = {"questions": marks.counts(), "right": marks.shares(), "wrong": marks.wrong}
        json_file.write_text(json.dumps({"machine": describe_machine(), **values}, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
