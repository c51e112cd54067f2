"""Streams of text beside questions about videos: how workers share the GPU, and who decodes the videos."""

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any

from bench.gpu.activity import activity
from bench.gpu.figures import Figures
from bench.gpu.machine import carried_clip
from bench.gpu.served import Served, served
from bench.gpu.shapes import make_folder
from bench.gpu.text_stream import TextStream

NO_CACHES = ("--no-prefix-cache", "--visual-cache-mib", "0")
QUESTION = "What happens?"
#: options by name; each is measured with videos decoded where it is fastest, and by cores
SHARING = {
    "shared, MPS": ("--placement", "shared", "--share", "mps"),
    "shared, in turn": ("--placement", "shared", "--share", "none"),
    "monolithic": ("--placement", "monolithic", "--share", "none"),
}
DECODING = ("fastest", "cpu")


@dataclass(frozen=True)
class Sizes:
    """Streams and their tokens before the first video; videos at once, how often, their frames and answers' tokens."""

    streams: int = 8
    stream_tokens: int = 12_000
    settle: int = 60
    videos: int = 4
    waves: int = 3
    frames: int = 64
    tokens: int = 32
    clip: str = "telescope.mp4"


def beside(figures: Figures, device: str, shape: str) -> None:
    """Measure all ways of sharing with a model of a published shape and made-up weights."""
    measure(figures, device, make_folder(Path(shape), shape), "bfloat16", Sizes())


def measure(figures: Figures, device: str, folder: Path, dtype: str, sizes: Sizes) -> None:
    """Serve the model of a folder in each way; a row is told when it is there, and streams' arrivals with it."""
    rows: list[dict[str, Any]] = []
    streams: dict[str, list[list[float]]] = {}
    for name, options in SHARING.items():
        for decode_on in DECODING:
            row: dict[str, Any] = {"sharing": name, "videos by": decode_on}
            rows.append(row)
            try:
                load = ("--load-format", "dummy", "--dtype", dtype)
                with served(folder, device, *load, *NO_CACHES, *options, "--decode-on", decode_on) as daemon:
                    found, arrivals = _beside(daemon, sizes)
            except Exception as error:  # the other ways still tell something
                row["error"] = f"{type(error).__name__}: {error}"[:200]
            else:
                row |= found
                streams[f"{name}, {decode_on}"] = arrivals
            figures.add(rows=rows, streams=streams)


def _beside(daemon: Served, sizes: Sizes) -> tuple[dict[str, float], list[list[float]]]:
    """Return a row, and the streams' arrivals in seconds from the first video's question."""
    clip = daemon.upload(carried_clip(sizes.clip))
    daemon.ask(QUESTION, clip, frames=sizes.frames, tokens=2)  # loads and compiles what is first used
    streams = [TextStream(daemon.url, number, sizes.stream_tokens) for number in range(sizes.streams)]
    for stream in streams:
        stream.await_tokens(sizes.settle)
    start = time.perf_counter()
    with activity() as busy:
        answers = _waves(daemon, clip, sizes)
        end = time.perf_counter()
    for stream in streams:
        stream.await_tokens(len(stream.arrivals) + 2)
        stream.stop()
    arrivals = [[at - start for at in stream.arrivals] for stream in streams]
    tokens = sum(0 < at <= end - start for times in arrivals for at in times) + sum(a["tokens"] for a in answers)
    row = _gaps("idle", _gaps_of(arrivals, -1e9, 0))
    row |= _gaps("", _gaps_of(arrivals, 0, end - start))
    row |= {
        "video_s": statistics.mean(answer["seconds"] for answer in answers),
        "video_ttft_s": statistics.mean(answer["ttft"] for answer in answers),
        "handoff_us": 1e6
        * statistics.median([answer["handoff"] for answer in answers if "handoff" in answer] or [nan]),
        "tokens_s": tokens / (end - start),
        "requests_s": len(answers) / (end - start),
    }
    return row | busy, [[round(at, 4) for at in times] for times in arrivals]


def _waves(daemon: Served, clip: str, sizes: Sizes) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    with ThreadPoolExecutor(sizes.videos) as threads:
        for wave in range(sizes.waves):
            asked = [
                threads.submit(daemon.ask, f"{QUESTION} {wave} {n}", clip, frames=sizes.frames, tokens=sizes.tokens)
                for n in range(sizes.videos)
            ]
            answers += [answer.result() for answer in asked]
    for answer in answers:
        answer |= _phases(daemon.trace(answer["id"]))
    return answers


def _gaps_of(arrivals: Sequence[Sequence[float]], start: float, stop: float) -> list[float]:
    """Return the gaps of all streams that end in (start, stop], and those that span `stop`."""
    pairs = (pair for times in arrivals for pair in pairwise(times))
    return sorted(after - before for before, after in pairs if after > start and before < stop)


def _gaps(name: str, gaps: Sequence[float]) -> dict[str, float]:
    prefix = f"{name}_" if name else ""
    return {
        f"{prefix}tbt_p50_ms": 1e3 * statistics.median(gaps),
        f"{prefix}tbt_p99_ms": 1e3 * gaps[int(0.99 * len(gaps))],
        f"{prefix}tbt_worst_ms": 1e3 * gaps[-1],
    }


def _phases(events: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return seconds: `ttft`, from the first thing that was done for a request to the end of its prefill, and
    `handoff`, from there to its first step of decode, if it has one.
    """
    work = [event for event in events if event.get("ph") == "X"]
    prefilled = max(event["ts"] + event["dur"] for event in work if event["name"] == "prefill")
    steps = [event["ts"] for event in work if event["cat"] == event["name"] == "decode"]
    found = {"ttft": (prefilled - min(event["ts"] for event in work)) / 1e6}
    return found | ({"handoff": max(0.0, min(steps) - prefilled) / 1e6} if steps else {})
