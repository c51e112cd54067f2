"""The pictures, from the document that serve-cpu.json holds."""

import statistics
from pathlib import Path
from typing import Any

import rows
from contestants import read
from rows import ROWS

COLORS = {
    "shared": "tab:orange",
    "monolithic": "tab:olive",
    "vllm": "tab:blue",
    "vllm_flashcodec": "tab:cyan",
    "llamacpp": "tab:red",
    "llamacpp_batched": "tab:pink",
    "openvino": "tab:brown",
    "generate": "tab:gray",
    "continuous": "tab:purple",
}
PHASE_COLORS = {"vision": "tab:green", "encode": "tab:orange", "prefill": "tab:purple", "video": "tab:gray"}
BARS = [
    row
    for row in ROWS
    if not row.workload.startswith(("stall", "phases"))
    and row.figure not in ("over_floor", "idle")
    and not (row.workload == "streams" and row.figure.startswith("tbt"))  # the rates tell the same
]
BARS_A_LINE = 4


def draw(document: dict[str, Any], folder: Path) -> None:
    """Draw, as far as there are figures, serve-cpu.png (the streams' tokens), serve-cpu-phases.png and -bars.png."""
    draw_stall(folder / "serve-cpu.png", document)
    draw_phases(folder / "serve-cpu-phases.png", document)
    draw_bars(folder / "serve-cpu-bars.png", document)


def draw_stall(path: Path, document: dict[str, Any], workload: str = "stall4") -> None:
    """Draw every token of the streams as a tick, and when videos were worked on, servers below each other."""
    shown = median_rounds(document, workload, "worst_gap")
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
            f"{read(name).title}: worst gap {figures['worst_gap'] * 1e3:.0f} ms, {figures['frozen']:.0%} of the time "
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


def draw_phases(path: Path, document: dict[str, Any], workload: str = "phases") -> None:
    """Draw what each text waited for its first token over its arrival, on the phases of the video."""
    shown = median_rounds(document, workload, "median")
    if not shown:
        return
    pyplot = plotting()
    figure, axes = pyplot.subplots(
        len(shown), 1, sharex=True, sharey=True, figsize=(11, 2.2 * len(shown) + 0.8), squeeze=False
    )
    for axis, (name, figures) in zip(axes.ravel(), shown.items(), strict=True):
        for phase, (start, stop) in figures["phases"].items():
            axis.axvspan(start, stop, color=PHASE_COLORS[phase], alpha=0.2, linewidth=0, label=phase)
        due, waits, _ = zip(*figures["texts"], strict=True)
        axis.vlines(due, figures["idle"], waits, color="tab:blue", linewidth=1)
        axis.plot(due, waits, "o", color="tab:blue", markersize=4)
        axis.axhline(figures["idle"], color="black", linestyle="--", linewidth=1)
        axis.axvline(figures["ttft"], color="tab:red", linewidth=1)
        axis.set_title(
            f"{read(name).title}: texts' TTFT {figures['median_ratio']:.1f} × that alone in the median, "
            f"{figures['worst_ratio']:.1f} × at worst; the video's {figures['ttft']:.1f} s",
            loc="left",
            fontsize=9,
        )
        axis.set_ylabel("TTFT of the text, s", fontsize=8)
        axis.legend(title="the video's", fontsize=7, title_fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.ravel()[-1].set_yscale("log")
    axes.ravel()[-1].set_xlabel(
        "arrival of the text, seconds after the video's; dashed: a text alone, red: the video's first token"
    )
    save(figure, path)


def median_rounds(document: dict[str, Any], workload: str, figure: str) -> dict[str, dict[str, Any]]:
    """Return of each server that has run the workload the round whose figure is the median one."""
    found = {
        name: [rows.workload_of(round_, name, workload) for round_ in document["rounds"]]
        for name in rows.servers_of(document)
    }
    done = {
        name: sorted((figures for figures in of if figure in figures), key=lambda figures: figures[figure])
        for name, of in found.items()
    }
    return {name: of[len(of) // 2] for name, of in done.items() if of}


def draw_bars(path: Path, document: dict[str, Any]) -> None:
    """Draw everything else: a bar a server, the median with the lowest and the highest."""
    servers = rows.servers_of(document)
    shown = [row for row in BARS if any(rows.values(document, name, row) for name in servers)]
    if not shown:
        return
    pyplot = plotting()
    columns = min(len(shown), BARS_A_LINE)
    lines = -(-len(shown) // columns)
    size = (3.25 * columns, lines * (1.2 + 0.25 * len(servers)))
    figure, grid = pyplot.subplots(lines, columns, figsize=size, squeeze=False)
    axes = list(grid.ravel())
    for axis in axes[len(shown) :]:
        axis.set_axis_off()
    for axis, row in zip(axes, shown, strict=False):
        for place, name in enumerate(reversed(servers)):
            if found := rows.values(document, name, row):
                middle = statistics.median(found)
                reach = [[middle - min(found)], [max(found) - middle]]
                axis.barh(place, middle, xerr=reach, color=COLORS[read(name).kind], error_kw={"linewidth": 0.8})
        axis.set_yticks(range(len(servers)), [read(name).title for name in reversed(servers)], fontsize=6)
        axis.set_ylim(-0.6, len(servers) - 0.4)
        axis.tick_params(axis="x", labelsize=6)
        arrow = "→" if row.more else "←"
        axis.set_title(f"{row.title} ({arrow} better)", loc="left", fontsize=6.5)
        if row.figure == "tbt":
            floor = document["checkpoint"]["language_model_bytes"] / statistics.median(rows.bandwidths(document))
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
    figure.savefig(path, dpi=120, bbox_inches="tight")
