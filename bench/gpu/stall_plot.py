"""Draw what streams did while videos were asked about: `python -m bench.gpu.stall_plot FOLDER`, of `serve_beside`.

A row is a way of sharing, a tick a token; what is coloured are the gaps of more than five idle ones.
"""

import json
import statistics
import sys
from itertools import pairwise
from pathlib import Path

from bench.gpu.results import DATA

LONG = 5.0  # idle gaps


def draw(path: Path, streams: dict[str, list[list[float]]]) -> None:
    """Draw the first stream of each way; times are seconds from the first video."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(streams), 1, figsize=(10, 1.1 * len(streams) + 1), sharex=True, squeeze=False)
    for axis, (name, several) in zip(axes[:, 0], streams.items(), strict=True):
        times = several[0]
        idle = statistics.median(after - before for before, after in pairwise(times) if after <= 0)
        axis.vlines(times, 0, 1, linewidth=0.4, color="#345")
        for before, after in pairwise(times):
            if after - before > LONG * idle:
                axis.axvspan(before, after, color="#d65", alpha=0.6, linewidth=0)
        axis.axvline(0, color="#080", linewidth=1)
        axis.set_yticks([])
        axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    axes[-1, 0].set_xlabel("seconds from the first question about a video")
    axes[0, 0].set_title(f"Tokens of one of several streams; coloured: gaps of over {LONG:g} idle ones")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def draw_saved(saved: Path) -> None:
    """Draw the streams of a run's results beside these, if it has any."""
    for record in json.loads(saved.read_text())["items"]:
        if record.get("item") == "serve_beside" and record.get("figures", {}).get("streams"):
            draw(saved.with_name("stalls.png"), record["figures"]["streams"])


if __name__ == "__main__":
    draw_saved(Path(sys.argv[1]) / DATA)
