"""The table and the pictures, from the document that serve-cpu.json holds.

python bench/serve_cpu/report.py    # writes them again
"""

import json
import statistics
from pathlib import Path
from typing import Annotated, Any

import rows
import typer
from rows import OURS, ROWS, TITLES, Row

RESULTS = Path(__file__).parents[1] / "results"
COLORS = {
    "shared": "tab:orange",
    "monolithic": "tab:olive",
    "vllm": "tab:blue",
    "generate": "tab:gray",
    "continuous": "tab:purple",
}
BARS = [row for row in ROWS if not row.workload.startswith("stall") and row.figure not in ("over_floor", "idle")]


def markdown(document: dict[str, Any]) -> str:
    servers = rows.servers_of(document)
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
        f"Read bandwidth with all cores: {rows.spread([value / 1e9 for value in bandwidths(document)])} GB/s. The "
        f"language model's weights on disk are {weights / 1e6:.0f} MB: a token at batch 1 takes at least "
        f"{weights / statistics.median(bandwidths(document)) * 1e3:.1f} ms (the floor).",
        "",
        f"Medians of {len(document['rounds'])} rounds (lowest–highest); the ratio is that of each round.",
        "",
        cells("", *(TITLES[name] for name in servers), "shared / vLLM"),
        cells("---", *("---:" for _ in servers), "---:"),
        *(
            table_row(document, servers, row)
            for row in ROWS
            if any(rows.values(document, name, row) for name in servers)
        ),
        "",
        *prompt_lengths(document, servers),
        *notes(document, servers),
    ]
    return "\n".join(lines).rstrip() + "\n"


def bandwidths(document: dict[str, Any]) -> list[float]:
    return [round_["bandwidth"] for round_ in document["rounds"]]


def table_row(document: dict[str, Any], servers: list[str], row: Row) -> str:
    found = [rows.spread(rows.values(document, name, row)) or "–" for name in servers]
    return cells(row.title, *found, rows.spread(rows.ratios(document, OURS[0], row)) or "–")


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
    return [f"* {TITLES[name]}: {note}" for name in servers for note in document["notes"].get(name, [])] + [
        f"* {TITLES[name]}, failed: {failure}" for name in servers for failure in rows.failures(document, name)
    ]


def cells(*texts: str) -> str:
    return f"| {' | '.join(text.replace('|', '/') for text in texts)} |"


def draw_stall(path: Path, document: dict[str, Any], workload: str = "stall4") -> None:
    """Draw every token of the streams as a tick, and when videos were worked on, servers below each other."""
    found = {name: median_round(document, name, workload) for name in rows.servers_of(document)}
    shown = {name: figures for name, figures in found.items() if figures is not None}
    if not shown:
        return
    pyplot = plotting()
    figure, axes = pyplot.subplots(len(shown), 1, sharex=True, figsize=(11, 1.9 * len(shown) + 0.8), squeeze=False)
    for axis, (name, figures) in zip(axes.ravel(), shown.items(), strict=True):
        axis.axvspan(0, figures["window"], color="tab:orange", alpha=0.15, linewidth=0)
        for token in figures["first_tokens"]:
            axis.axvline(token, color="tab:red", linewidth=1)
        for number, stream in enumerate(figures["streams"]):
            axis.vlines(stream, number + 0.1, number + 0.9, color="tab:blue", linewidth=0.5)
        axis.set_title(
            f"{TITLES[name]}: worst gap {figures['worst_gap'] * 1e3:.0f} ms, {figures['frozen']:.0%} of the time "
            f"frozen, {figures['before']:.0f} → {figures['during']:.0f} tokens/s, videos' TTFT {figures['ttft']:.1f} s",
            loc="left",
            fontsize=9,
        )
        names = [f"stream {number + 1}" for number in range(len(figures["streams"]))]
        axis.set_yticks([number + 0.5 for number in range(len(names))], names, fontsize=7)
        axis.invert_yaxis()
    last = axes.ravel()[-1]
    last.set_xlabel(
        "seconds from the arrival of the videos; blue: tokens of the streams, red: first tokens about videos"
    )
    last.set_xlim(-3, max(figures["window"] for figures in shown.values()) + 1)
    save(figure, path)


def median_round(document: dict[str, Any], server: str, workload: str) -> dict[str, Any] | None:
    """Return the round whose worst gap is the median one."""
    found = [rows.workload_of(round_, server, workload) for round_ in document["rounds"]]
    done = sorted((figures for figures in found if "worst_gap" in figures), key=lambda figures: figures["worst_gap"])
    return done[len(done) // 2] if done else None


def draw_bars(path: Path, document: dict[str, Any]) -> None:
    """Draw everything else: a bar a server, the median with the lowest and the highest."""
    servers = rows.servers_of(document)
    pyplot = plotting()
    figure, grid = pyplot.subplots(2, 4, figsize=(13, 2.4 + 0.5 * len(servers)), squeeze=False)
    axes = list(grid.ravel())
    for axis in axes[len(BARS) :]:
        axis.set_axis_off()
    for axis, row in zip(axes, BARS, strict=False):
        for place, name in enumerate(reversed(servers)):
            if found := rows.values(document, name, row):
                middle = statistics.median(found)
                reach = [[middle - min(found)], [max(found) - middle]]
                axis.barh(place, middle, xerr=reach, color=COLORS[name], error_kw={"linewidth": 0.8})
        axis.set_yticks(range(len(servers)), [TITLES[name] for name in reversed(servers)], fontsize=6)
        axis.set_ylim(-0.6, len(servers) - 0.4)
        axis.tick_params(axis="x", labelsize=6)
        arrow = "→" if row.more else "←"
        axis.set_title(f"{row.title} ({arrow} better)", loc="left", fontsize=6.5)
        if row.figure == "tbt":
            floor = document["checkpoint"]["language_model_bytes"] / statistics.median(bandwidths(document))
            axis.axvline(floor * 1e3, color="black", linestyle="--", linewidth=1)
            axis.set_xlabel("dashed: the bandwidth floor", fontsize=6)
    save(figure, path)


def plotting() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def write(document: dict[str, Any], folder: Path) -> None:
    """Write serve-cpu.md, serve-cpu.png (the streams' tokens) and serve-cpu-bars.png."""
    (folder / "serve-cpu.md").write_text(markdown(document))
    draw_stall(folder / "serve-cpu.png", document)
    draw_bars(folder / "serve-cpu-bars.png", document)


def main(folder: Annotated[Path, typer.Argument(help="Folder of serve-cpu.json")] = RESULTS) -> None:
    """Write the table and the pictures again."""
    write(json.loads((folder / "serve-cpu.json").read_text()), folder)


if __name__ == "__main__":
    typer.run(main)
