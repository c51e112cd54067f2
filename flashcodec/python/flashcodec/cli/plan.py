"""`flashcodec plan`: what decoding a choice of frames would take, without decoding anything."""

import json
from typing import Annotated, Any

import numpy as np
import typer
from rich.bar import Bar
from rich.table import Table

from flashcodec.bitstream import Bitstream, Plan
from flashcodec.cli.console import facts, heading, plain_table, stdout
from flashcodec.cli.picture import colour_of, gops_of_run, legend, picture
from flashcodec.cli.video import File, Fps, IndexList, Indices, Json, NumFrames, StreamIndex, chosen_frames, open_video
from flashcodec.serving import default_codec

_MOST_ROWS = 16
_BAR_WIDTH = 30

Threads = Annotated[int, typer.Option("--threads", min=0, max=1024, metavar="N", help="Engines; 0: one a core")]


def plan(
    file: File,
    frames: NumFrames = None,
    fps: Fps = None,
    indices: IndexList = None,
    stream: StreamIndex = None,
    threads: Threads = 0,
    json: Json = False,
) -> None:
    """Show which packets must be decoded for some frames, and which need not.

    Without a choice, it is 64 frames at even distances.

    \b
    64 frames at even distances:
      flashcodec plan lecture.mp4 --frames 64
    One frame a second:
      flashcodec plan lecture.mp4 --fps 1
    The first, the sixth and the last frame, on four engines:
      flashcodec plan lecture.mp4 --indices 0,5,-1 --threads 4
    """
    video = open_video(file, stream)
    targets = chosen_frames(video, frames, fps, indices)
    engines = threads or default_codec().num_engines
    planned = video.plan(targets, engines)
    report = _report(file, video, targets, planned, engines)
    if json:
        print(_as_json(report))
    else:
        _show(report, video, targets, planned)


def _report(file: str, video: Bitstream, targets: Indices, planned: Plan, engines: int) -> dict[str, Any]:
    total = video.gops[-1].last_packet
    needed, skipped = planned.packets_needed, planned.packets_skipped
    return {
        "file": file,
        "frames": targets.tolist(),
        "num_frames": video.num_frames,
        "engines": engines,
        "packets": {
            "total": total,
            "needed": needed,
            "skipped": skipped,
            "never_read": max(0, total - needed - skipped),
        },
        "gops": {"total": len(video.gops), "touched": _gops_touched(video, planned)},
        "segments": [
            {
                "frames": segment.last - segment.first,
                "packets_needed": segment.packets_needed,
                "packets_skipped": segment.packets_skipped,
                "cost": segment.cost,
            }
            for segment in planned.segments
        ],
    }


def _as_json(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=2)


def _gops_touched(video: Bitstream, planned: Plan) -> int:
    starts = np.array([gop.first_packet for gop in video.gops])
    touched = np.zeros(len(starts), bool)
    for segment in planned.segments:
        for first, last in segment.runs:
            touched[gops_of_run(starts, first, last)] = True
    return int(touched.sum())


def _show(report: dict[str, Any], video: Bitstream, targets: Indices, planned: Plan) -> None:
    console = stdout()
    packets, gops = report["packets"], report["gops"]
    heading(console, f"{len(report['frames'])} of {report['num_frames']} frames of {report['file']}")
    table = facts()
    table.add_row("packets needed", _share(packets["needed"], packets["total"]))
    table.add_row("skipped", _share(packets["skipped"], packets["total"]) + "  no frame wanted refers to them")
    table.add_row("never read", _share(packets["never_read"], packets["total"]))
    table.add_row("GOPs touched", f"{gops['touched']} of {gops['total']}")
    console.print(table)
    console.print()
    console.print(picture(video, targets, planned, console.width))
    console.print(legend())
    console.print()
    heading(console, f"{len(report['segments'])} segments for {report['engines']} engines")
    console.print(_segments(report["segments"]))


def _share(part: int, whole: int) -> str:
    return f"{part:>7} of {whole} ({100 * part / whole:.1f} %)"


def _segments(segments: list[dict[str, Any]]) -> Table:
    """What each segment takes; whichever engine is free takes the next."""
    table = plain_table()
    for name in ("segment", "frames", "needed", "skipped"):
        table.add_column(name, justify="right")
    table.add_column("cost", width=_BAR_WIDTH)
    most = max(segment["cost"] for segment in segments)
    for number, segment in enumerate(segments[:_MOST_ROWS]):
        bar = Bar(most, 0, segment["cost"], width=_BAR_WIDTH, color=colour_of(number))
        counts = (segment["frames"], segment["packets_needed"], segment["packets_skipped"])
        table.add_row(str(number), *map(str, counts), bar)
    if len(segments) > _MOST_ROWS:
        table.add_row(f"… {len(segments) - _MOST_ROWS} more")
    return table
