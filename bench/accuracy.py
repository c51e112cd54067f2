"""How often the bundled model is right, over HTTP, about encoded files of scenes that it was never trained on.

python bench/accuracy.py --scenes 200
"""

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Annotated

import typer
from machine import describe_machine
from rich.console import Console
from rich.table import Table
from streams import daemon

from unifiedserve.demo.examination import examine, is_right, papers, row_of
from unifiedserve.models.default import DEFAULT_CHECKPOINT

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


def main(
    model: Annotated[Path | None, typer.Option(help="Checkpoint; default: the bundled one")] = None,
    scenes: Annotated[int, typer.Option(help="Files, each with a dozen questions")] = 200,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where the shares and wrong answers go")] = None,
) -> None:
    """Shares of right answers by category, beside what they should be."""
    results: dict[str, list[bool]] = defaultdict(list)
    wrong = []
    with tempfile.TemporaryDirectory() as name, daemon(model or DEFAULT_CHECKPOINT, Path(name)) as url:
        for paper, turn, text in examine(url, papers(scenes, Path(name))):
            right = is_right(paper.scene, turn, text)
            results[row_of(paper.scene, turn)].append(right)
            if not right:
                wrong.append({"question": turn.question, "right": turn.answer, "answer": text})
    table = Table("category", "questions", "right", "target")
    shares = {row: sum(own) / len(own) for row, own in sorted(results.items())}
    for row, share in shares.items():
        target = f"{TARGETS[row]:.0%}" if row in TARGETS else ""
        table.add_row(row, str(len(results[row])), f"{share:.1%}", target)
    Console().print(table)
    if json_file:
        counts = {row: len(own) for row, own in results.items()}
        values = {"machine": describe_machine(), "questions": counts, "right": shares, "wrong": wrong}
        json_file.write_text(json.dumps(values, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
