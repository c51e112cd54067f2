"""Draw a video as bars of text: its GOPs, the part of each that is decoded, and the frames wanted."""

import numpy as np
import numpy.typing as npt
from rich.text import Text

from flashcodec.bitstream import Bitstream, Gop, Plan
from flashcodec.cli.console import clock

COLOURS = ("green", "cyan", "magenta", "blue", "yellow", "red")
_MOST_ROWS = 6
_LABEL = 13

_NOT_READ = -1


def picture(video: Bitstream, targets: npt.NDArray[np.int64], plan: Plan, width: int) -> Text:
    """Draw rows of time, each a ruler with GOP marks above its frames.

    A mark shows where a GOP begins. Frames are █ wanted, ▒ decoded on the way there (colours tell the segments apart),
    · not touched. `width` is in characters.
    """
    columns = max(8, width - _LABEL)
    rows = min(_MOST_ROWS, -(-video.num_frames // columns))
    cells = min(video.num_frames, rows * columns)
    edges = np.linspace(0, video.num_frames, cells + 1).astype(int)
    segment_of, wanted = _segment_of_frames(video, targets, plan), np.isin(np.arange(video.num_frames), targets)
    begins = np.isin(np.arange(video.num_frames), [gop.first_frame for gop in video.gops])
    drawn = Text(no_wrap=True)
    for start in range(0, cells, columns):
        row = list(zip(edges[start:-1], edges[start + 1 :], strict=True))[:columns]
        drawn.append(f"{clock(video.pts_seconds[row[0][0]]):>{_LABEL - 1}} ", "dim")
        drawn.append("".join("┬" if begins[a:b].any() else "─" for a, b in row) + "\n" + " " * _LABEL, "dim")
        for a, b in row:
            drawn.append(*_cell(segment_of[a:b], bool(wanted[a:b].any())))
        drawn.append("\n")
    return drawn


def gops_of_run(starts: npt.NDArray[np.int64], first: int, last: int) -> slice:
    """Return which GOPs packets [first, last) touch; `starts` are the GOPs' first packets."""
    return slice(max(0, int(np.searchsorted(starts, first, "right")) - 1), int(np.searchsorted(starts, last)))


def legend() -> Text:
    return Text(f"{'':{_LABEL}}┬ a GOP begins  █ wanted  ▒ decoded on the way  · not touched", "dim")


def colour_of(segment: int) -> str:
    return COLOURS[segment % len(COLOURS)]


def _cell(segments: npt.NDArray[np.int64], wanted: bool) -> tuple[str, str]:
    segment = int(segments.max())
    if segment == _NOT_READ:
        return "·", "dim"
    return "█" if wanted else "▒", colour_of(segment)


def _segment_of_frames(video: Bitstream, targets: npt.NDArray[np.int64], plan: Plan) -> npt.NDArray[np.int64]:
    """Return int64 [num_frames], which segment decodes each frame, or _NOT_READ."""
    owner = np.full(video.num_frames, _NOT_READ)
    starts = np.array([gop.first_packet for gop in video.gops])
    for number, segment in enumerate(plan.segments):
        for first, last in segment.runs:
            for gop in video.gops[gops_of_run(starts, first, last)]:
                owner[gop.first_frame : _last_decoded(gop, last)] = number
        owner[targets[segment.first : segment.last]] = number
    return owner


def _last_decoded(gop: Gop, last_packet: int) -> int:
    """Return where a run that ends at `last_packet` ends among the GOP's frames; by count, as reordering is local."""
    return min(gop.last_frame, gop.first_frame + last_packet - gop.first_packet)
