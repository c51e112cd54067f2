"""The table and the pictures, from the document that serve-cpu.json holds.

python bench/serve_cpu/report.py    # writes them again
"""

import json
import statistics
from pathlib import Path
from typing import Annotated, Any

import rows
import typer
from contestants import read
from pictures import draw
from rows import ROWS, Row

RESULTS = Path(__file__).parents[1] / "results" / "serve-cpu" / "placements"


def markdown(document: dict[str, Any]) -> str:
    servers, pair = rows.servers_of(document), rows.pair_of(document)
    machine = document["machine"]
    weights = document["checkpoint"]["language_model_bytes"]
    lines = [
        "# Serving on a CPU, side by side",
        "",
        f"`{document['command']}`",
        "",
        f"{machine['cpu']}, {machine['cores']}; {machine['memory']}; {machine['date']}; load at the start "
        f"{document['load']:.1f}. {', '.join(f'{name} {version}' for name, version in document['versions'].items())}.",
        "",
        f"Read bandwidth with all cores: {rows.spread([value / 1e9 for value in rows.bandwidths(document)])} GB/s. The "
        f"language model's weights on disk are {weights / 1e6:.0f} MB: a token at batch 1 takes at least "
        f"{weights / statistics.median(rows.bandwidths(document)) * 1e3:.1f} ms (the floor).",
        "",
        f"Medians of {len(document['rounds'])} rounds (lowest–highest); the ratio is that of each round.",
        "",
        cells(
            "",
            *(read(name).title for name in servers),
            *([" / ".join(read(name).title for name in pair)] if pair else []),
        ),
        cells("---", *("---:" for _ in servers), *(["---:"] if pair else [])),
        *(
            table_row(document, servers, pair, row)
            for row in ROWS
            if any(rows.values(document, name, row) for name in servers)
        ),
        "",
        *prompt_lengths(document, servers),
        *notes(document, servers),
    ]
    return "\n".join(lines).rstrip() + "\n"


def table_row(document: dict[str, Any], servers: list[str], pair: tuple[str, str] | None, row: Row) -> str:
    found = [rows.values(document, name, row) for name in servers]
    ratios = [rows.ratios(document, pair, row)] if pair else []
    return cells(row.title, *(rows.spread(numbers) or "–" for numbers in found + ratios))


def prompt_lengths(document: dict[str, Any], servers: list[str]) -> list[str]:
    """Say whether the servers saw prompts of the same length, visual tokens included."""
    seen = {
        workload: {
            name: rows.workload_of(round_, name, workload)["prompt_tokens"]
            for round_ in document["rounds"]
            for name in servers
            if "prompt_tokens" in rows.workload_of(round_, name, workload)
        }
        for workload in rows.WORKLOADS
    }
    same = [f"{workload} {next(iter(of.values()))}" for workload, of in seen.items() if len(set(of.values())) == 1]
    different = [f"{workload} {of}" for workload, of in seen.items() if len(set(of.values())) > 1]
    lines = [f"Prompt tokens, the same for all: {', '.join(same)}."] if same else []
    return [*lines, *(f"**Prompt tokens differ: {', '.join(different)}.**" for _ in different[:1]), ""]


def notes(document: dict[str, Any], servers: list[str]) -> list[str]:
    return [f"* {read(name).title}: {note}" for name in servers for note in document["notes"].get(name, [])] + [
        f"* {read(name).title}, failed: {failure}" for name in servers for failure in rows.failures(document, name)
    ]


def cells(*texts: str) -> str:
    return f"| {' | '.join(text.replace('|', '/') for text in texts)} |"


def write(document: dict[str, Any], folder: Path) -> None:
    """Write serve-cpu.md and the pictures."""
    (folder / "serve-cpu.md").write_text(markdown(document))
    draw(document, folder)


def main(folder: Annotated[Path, typer.Argument(help="Folder of serve-cpu.json")] = RESULTS) -> None:
    """Write the table and the pictures again."""
    write(json.loads((folder / "serve-cpu.json").read_text()), folder)


if __name__ == "__main__":
    typer.run(main)
