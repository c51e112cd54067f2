"""Draw the progress of the whole system: tokens over time."""

from collections.abc import Mapping, Sequence

from unifiedserve.bench.metrics.throughput import token_progress
from unifiedserve.bench.records import Record
from unifiedserve.bench.report.plots import theme


def draw_progress(curves: Mapping[str, Sequence[Record]]) -> str | None:
    """Draw how many tokens there were, and below when videos were due; None if there never were any."""
    if not any(record.token_times for records in curves.values() for record in records):
        return None
    styles = theme.line_styles(list(curves))
    with theme.drawing():
        figure, axes = theme.new_figure(3.2 + 0.12 * len(curves))
        axis = axes[0, 0]
        lines = []
        for place, (label, records) in enumerate(curves.items()):
            times, counts = token_progress(records)
            shown = theme.thinned(times.size, theme.POINTS)
            lines += axis.plot(times[shown], counts[shown], **styles[label])
            videos = [record.due for record in records if record.video_seconds]
            heights = [-0.025 - 0.035 * place] * len(videos)
            marks = {"color": styles[label]["color"], "transform": axis.get_xaxis_transform(), "clip_on": False}
            axis.plot(videos, heights, "^", markersize=4, **marks)
        axis.set_ylim(bottom=0)
        axis.tick_params(axis="x", pad=6 + 6 * len(curves))
        axis.set_xlabel("seconds from the start of the run; triangles: a video arrives")
        axis.set_ylabel("output tokens so far")
        theme.legend_below(figure, lines, list(curves))
        return theme.as_svg(figure, "progress")
