"""Run `flashcodec plan`: what decoding a choice of frames would take, without decoding anything."""

import json
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer
from rich.bar import Bar
from rich.table import Table

from flashcodec.bitstream import Bitstream, Plan
from flashcodec.cli.console import facts, heading, plain_table, stdout
from flashcodec.cli.picture import colour_of, legend, picture
from flashcodec.cli.video import (
    File,
    Fps,
    IndexList,
    Indices,
    Json,
    NumFrames,
    Snap,
    StreamIndex,
    chosen_frames,
    open_video,
)
from flashcodec.serving import EngineEstimate, FlashCodec

_MOST_ROWS = 16
_BAR_WIDTH = 30

Threads = Annotated[
    int,
    typer.Option("--threads", min=0, max=1024, metavar="N", help="Decoding threads to plan for. 0: one for each core"),
]
Ranks = Annotated[
    int,
    typer.Option("--ranks", min=1, max=1024, metavar="N", help="Ranks that share the video, each with some GOPs"),
]
TemporalPatch = Annotated[
    int,
    typer.Option(
        "--temporal-patch", min=1, max=1024, metavar="N", help="Frames that a model merges; ranks get whole patches"
    ),
]
Device = Annotated[
    str, typer.Option("--device", metavar="DEVICE", help="The device that gets the frames: cpu, cuda or cuda:N")
]
DecodeOn = Annotated[
    Literal["fastest", "cpu", "gpu"],
    typer.Option("--decode-on", help="The decoder: cpu, gpu (its NVDEC units), or whichever is estimated to be faster"),
]


def plan(
    file: File,
    frames: NumFrames = None,
    fps: Fps = None,
    indices: IndexList = None,
    snap: Snap = False,
    stream: StreamIndex = None,
    threads: Threads = 0,
    device: Device = "cpu",
    decode_on: DecodeOn = "fastest",
    ranks: Ranks = 1,
    temporal_patch: TemporalPatch = 1,
    json: Json = False,
) -> None:
    """Show which packets must be decoded to get some frames, and which are skipped.

    Without --frames, --fps or --indices, 64 frames at even distances are taken.

    \b
    Plan 64 frames at even distances:
      flashcodec plan lecture.mp4 --frames 64
    Plan one frame a second:
      flashcodec plan lecture.mp4 --fps 1
    Plan the first, the sixth and the last frame on four threads:
      flashcodec plan lecture.mp4 --indices 0,5,-1 --threads 4
    See whether the NVDEC units of a GPU or the cores decode frames for it:
      flashcodec plan lecture.mp4 --device cuda
    See which frames each of four ranks decodes, of a model that merges two frames:
      flashcodec plan lecture.mp4 --ranks 4 --temporal-patch 2
    """
    video = open_video(file, stream)
    targets = chosen_frames(video, frames, fps, indices, snap)
    with _codec(threads, device) as codec:
        kinds = codec.estimate(video, targets, decode_on=decode_on)
    engines = sum(kind.engines for kind in kinds if kind.chosen)
    if engines == 0:
        raise typer.BadParameter(f"--decode-on {decode_on}: no engine of this kind decodes this video for {device}")
    planned = video.plan(targets, engines, temporal_patch)
    report = _report(file, video, targets, planned, kinds)
    report["ranks"] = [part._asdict() for part in video.rank_parts(targets, ranks, temporal_patch)]
    if json:
        print(_as_json(report))
    else:
        _show(report, video, targets, planned)


def _codec(threads: int, device: str) -> FlashCodec:
    try:
        return FlashCodec(threads, device=device)
    except (ValueError, RuntimeError) as error:  # no such device
        raise typer.BadParameter(f"--device: {error}") from error


def _report(
    file: str, video: Bitstream, targets: Indices, planned: Plan, kinds: tuple[EngineEstimate, ...]
) -> dict[str, Any]:
    return {
        "file": file,
        "frames": targets.tolist(),
        "num_frames": video.num_frames,
        "engines": sum(kind.engines for kind in kinds if kind.chosen),
        "decoded_on": [asdict(kind) for kind in kinds],
        "packets": {
            "total": planned.packets_total,
            "needed": planned.packets_needed,
            "skipped": planned.packets_skipped,
            "never_read": max(0, planned.packets_unread),
        },
        "gops": {"total": planned.gops_total, "touched": planned.gops_touched},
        "doubts": [doubt._asdict() for doubt in planned.doubts],
        "estimated_cpu_seconds": planned.estimated_seconds,
        "segments": [
            {
                "frames": segment.last - segment.first,
                "packets_needed": segment.packets_needed,
                "packets_skipped": segment.packets_skipped,
                "estimated_cpu_seconds": segment.cost / 1e6,
                "all_engines": segment.wide,
            }
            for segment in planned.segments
        ],
    }


def _as_json(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=2)


def _show(report: dict[str, Any], video: Bitstream, targets: Indices, planned: Plan) -> None:
    console = stdout()
    packets, gops = report["packets"], report["gops"]
    heading(console, f"{len(report['frames'])} of {report['num_frames']} frames of {report['file']}")
    table = facts()
    table.add_row("packets needed", _share(packets["needed"], packets["total"]))
    table.add_row("skipped", _share(packets["skipped"], packets["total"]) + "  no frame wanted refers to them")
    table.add_row("never read", _share(packets["never_read"], packets["total"]))
    table.add_row("GOPs touched", f"{gops['touched']} of {gops['total']}")
    for number, trust in enumerate(_trusts(report["doubts"])):
        table.add_row("trusts" if number == 0 else "", trust)
    table.add_row("estimated", f"{report['estimated_cpu_seconds']:.3f} s of CPU time")
    for number, kind in enumerate(sorted(report["decoded_on"], key=lambda kind: not kind["chosen"])):
        table.add_row("decoded on" if number == 0 else "", _kind(kind))
    console.print(table)
    console.print()
    console.print(picture(video, targets, planned, console.width))
    console.print(legend())
    console.print()
    heading(console, f"{len(report['segments'])} segments for {report['engines']} engines")
    console.print(_segments(report["segments"]))
    if len(report["ranks"]) > 1:
        console.print()
        heading(console, f"{len(report['ranks'])} ranks")
        console.print(_ranks(report["ranks"]))


def _trusts(doubts: list[dict[str, str]]) -> list[str]:
    if not doubts:
        return ["what the container says"]
    return [f"{doubt['claim']} no ({doubt['reason']})" for doubt in doubts]


def _kind(kind: dict[str, Any]) -> str:
    alone = f"{kind['name']}, {kind['engines']} engines: {kind['seconds']:.3f} s alone"
    return alone if kind["chosen"] else f"[dim]{alone}, not chosen[/dim]"


def _share(part: int, whole: int) -> str:
    return f"{part:>7} of {whole} ({100 * part / whole:.1f} %)"


def _segments(segments: list[dict[str, Any]]) -> Table:
    """Tell what each segment takes; whichever engine is free takes the next."""
    table = plain_table()
    for name in ("segment", "frames", "needed", "skipped"):
        table.add_column(name, justify="right")
    table.add_column("CPU s", justify="right")
    table.add_column()
    most = max(segment["estimated_cpu_seconds"] for segment in segments)
    for number, segment in enumerate(segments[:_MOST_ROWS]):
        seconds = segment["estimated_cpu_seconds"]
        bar = Bar(most, 0, seconds, width=_BAR_WIDTH, color=colour_of(number))
        counts = (number, segment["frames"], segment["packets_needed"], segment["packets_skipped"])
        table.add_row(*map(str, counts), f"{seconds:.3f}", bar)
    if len(segments) > _MOST_ROWS:
        table.add_row(f"… {len(segments) - _MOST_ROWS} more")
    return table


def _ranks(parts: list[dict[str, int]]) -> Table:
    """Tell what each rank takes of the frames, and how many it decodes for them."""
    table = plain_table()
    for name in ("rank", "frames", "decoded"):
        table.add_column(name, justify="right")
    for rank, part in enumerate(parts):
        table.add_row(str(rank), str(part["last"] - part["first"]), str(part["frames_decoded"]))
    return table
