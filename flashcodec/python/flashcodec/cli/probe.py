"""Run `flashcodec probe`: what is known of a video without decoding it."""

import dataclasses
import json
import os
import time
from fractions import Fraction
from typing import Any

import numpy as np
from rich.text import Text

from flashcodec.bitstream import Bitstream
from flashcodec.cli.console import clock, facts, heading, megabytes, stdout
from flashcodec.cli.findings import findings, is_open
from flashcodec.cli.video import File, Json, StreamIndex, open_video

_BARS = "▁▂▃▄▅▆▇█"


def probe(file: File, stream: StreamIndex = None, json: Json = False) -> None:
    """Show a video's metadata, its GOPs, and warnings about it.

    \b
    Look at a file:
      flashcodec probe holiday.mp4
    Print the second stream's facts as JSON:
      flashcodec probe holiday.mkv --stream 1 --json
    """
    report = examine(file, stream)
    if json:
        print(as_json(report))
    else:
        _show(report)


def examine(file: str, stream: int | None) -> dict[str, Any]:
    """Return the report as JSON values, but for fractions."""
    began = time.perf_counter()
    video = open_video(file, stream)
    seconds = time.perf_counter() - began
    return {
        "file": file,
        "bytes": os.stat(file).st_size,
        "metadata": dataclasses.asdict(video.metadata),
        "gops": _gop_structure(video),
        "analysis": {"seconds": seconds, "whole_file_read": video.core.scanned},
        "warnings": [{"code": code, "message": text} for code, text in findings(video)],
    }


def as_json(report: Any) -> str:
    """Write a value as JSON. Fractions become "n/d"."""
    return json.dumps(report, indent=2, default=_plain)


def _gop_structure(video: Bitstream) -> dict[str, Any]:
    lengths = np.array([gop.last_packet - gop.first_packet for gop in video.gops])
    starts = video.pts_seconds[[min(gop.first_frame, video.num_frames - 1) for gop in video.gops]]
    return {
        "count": len(video.gops),
        "packets": int(lengths.sum()),
        "shortest": int(lengths.min()),
        "median": float(np.median(lengths)),
        "longest": int(lengths.max()),
        "median_seconds": float(np.median(np.diff([*starts, video.metadata.end_stream_seconds]))),
        "open": sum(is_open(video, gop) for gop in video.gops),
        "lengths": lengths.tolist(),
    }


def _show(report: dict[str, Any]) -> None:
    console = stdout()
    meta, gops, analysis = report["metadata"], report["gops"], report["analysis"]
    heading(console, report["file"])
    table = facts()
    table.add_row("video", _picture(meta))
    table.add_row("colour", _colour(meta))
    table.add_row("length", _length(meta))
    table.add_row("bit rate", f"{meta['bit_rate'] / 1e6:.2f} Mbit/s" if meta["bit_rate"] else "unknown")
    table.add_row("GOPs", _gops(gops))
    table.add_row("", Text(_sparkline(gops["lengths"], max(8, console.width - 12)), style="green", no_wrap=True))
    read = "the whole file" if analysis["whole_file_read"] else "the tables"
    table.add_row("analysis", f"{analysis['seconds'] * 1000:.1f} ms, from {read} ({megabytes(report['bytes'])})")
    console.print(table)
    for warning in report["warnings"]:
        console.print(Text.assemble((" ! ", "bold yellow"), warning["message"]))


def _picture(meta: dict[str, Any]) -> str:
    parts = [f"stream {meta['stream_index']}: {meta['codec']}", f"{meta['width']}×{meta['height']}"]
    parts += [meta["pixel_format"]] if meta["pixel_format"] else []
    parts += [f"{meta['average_fps']:.3f}".rstrip("0").rstrip(".") + " fps"] if meta["average_fps"] else []
    return ", ".join(parts)


def _colour(meta: dict[str, Any]) -> str:
    names = {"matrix": "color_space", "primaries": "color_primaries", "transfer": "color_transfer_characteristic"}
    return ", ".join(f"{name} {meta[key]}" for name, key in names.items() if meta[key]) or "unspecified"


def _length(meta: dict[str, Any]) -> str:
    return f"{meta['num_frames']} frames, {clock(meta['duration_seconds'])}"


def _gops(gops: dict[str, Any]) -> str:
    if gops["longest"] == 1:
        return f"{gops['count']}: every frame is a key frame"
    span = f"{gops['shortest']}–{gops['longest']}" if gops["shortest"] < gops["longest"] else f"{gops['longest']}"
    kind = f"{gops['open']} open" if gops["open"] else "closed"
    return f"{gops['count']} of {span} packets, median {gops['median']:g} ({gops['median_seconds']:.2f} s), {kind}"


def _sparkline(lengths: list[int], width: int) -> str:
    """Draw a bar for each GOP, as high as it has packets; for the longest of several where they do not fit."""
    groups = np.array_split(np.array(lengths), min(width, len(lengths)))
    highest = max(lengths)
    return "".join(_BARS[round((len(_BARS) - 1) * int(group.max()) / highest)] for group in groups)


def _plain(value: Any) -> str:
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    raise TypeError(f"no JSON for {type(value).__name__}")
